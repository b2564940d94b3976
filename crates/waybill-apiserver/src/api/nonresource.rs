//! Paths that are no resources: discovery, OpenAPI, version, metrics, and keys for nodes.

use http::{Method, StatusCode, header};
use serde_json::{Value, json};
use waybill_api::{exec::SESSION_KEYS_PATH, gates::KubeVersion, status::Status};

use super::{Api, Context, text_header};
use crate::{
    discovery,
    http::Answer,
    registry::{RESOURCES, Resource, group_versions},
    schema::{OpenApi, ServedKind, ServedSubresource, V2_PROTOBUF},
};

impl Api {
    pub(super) async fn path(&self, path: &str, context: &Context<'_>) -> Result<Answer, Status> {
        if !matches!(*context.method, Method::GET | Method::HEAD) {
            return Err(Status::no_such_path());
        }
        let accept = text_header(context.headers, header::ACCEPT);
        if discovery::aggregated::is_wanted(accept)
            && let Some(document) = discovery::aggregated::document(path)
        {
            let content_type = discovery::aggregated::MEDIA_TYPE;
            return Ok(Answer { content_type, ..Answer::value(&document) });
        }
        if let Some(document) = discovery::document(path) {
            return Ok(Answer::value(&document));
        }
        if let Some(answer) = self.health(path, context.query).await {
            return answer;
        }
        match path.trim_end_matches('/') {
            "" => Ok(Answer::value(&json!({"paths": paths()}))),
            "/metrics" => Ok(self.metrics.answer()),
            SESSION_KEYS_PATH => Ok(Answer::value(self.session_signer.keys())),
            "/version" => Ok(Answer::value(&version(self.gates.emulated_version()))),
            "/openapi/v2" => Ok(self.open_api_v2(context)),
            "/openapi/v3" => Ok(Answer::json(StatusCode::OK, self.open_api.v3_index())),
            path => {
                let document = path.strip_prefix("/openapi/v3/");
                let document = document.and_then(|path| self.open_api.v3(path));
                let document = document.ok_or_else(Status::no_such_path)?;
                Ok(Answer::json(StatusCode::OK, document))
            }
        }
    }

    /// Old parts of kubectl read the second version as protobuf and nothing else.
    fn open_api_v2(&self, context: &Context<'_>) -> Answer {
        let accept = text_header(context.headers, header::ACCEPT);
        if accept.contains("proto-openapi.spec.v2") && accept.contains("protobuf") {
            let answer = Answer::json(StatusCode::OK, self.open_api.v2_protobuf());
            return Answer { content_type: V2_PROTOBUF, ..answer };
        }
        Answer::json(StatusCode::OK, self.open_api.v2())
    }
}

/// The documents of everything in the registry.
pub(crate) fn open_api() -> OpenApi {
    OpenApi::new(RESOURCES.iter().copied().map(served).collect())
}

fn served(resource: &'static Resource) -> ServedKind {
    let subresources: Vec<ServedSubresource> = resource
        .subresources
        .iter()
        .map(|subresource| {
            let (group, version) =
                subresource.group_version.unwrap_or((resource.group, resource.version));
            let kind = if subresource.kind.is_empty() { resource.kind } else { subresource.kind };
            ServedSubresource {
                name: subresource.name,
                group,
                version,
                kind,
                verbs: subresource.verbs,
            }
        })
        .collect();
    ServedKind {
        group: resource.group,
        version: resource.version,
        kind: resource.kind,
        resource: resource.plural,
        namespaced: resource.is_namespaced(),
        verbs: resource.verbs,
        // Made once, for the life of the process.
        subresources: Vec::leak(subresources),
    }
}

/// What clients are told that we are; `kubectl version` compares it with itself.
fn version(emulated: KubeVersion) -> Value {
    let text = emulated.to_string();
    let (major, minor) = text.split_once('.').unwrap_or(("1", "0"));
    json!({
        "major": major,
        "minor": minor,
        "gitVersion": format!("v{text}.0+waybill-{}", env!("CARGO_PKG_VERSION")),
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

fn paths() -> Vec<String> {
    let mut paths = vec!["/api".to_owned(), "/api/v1".to_owned(), "/apis".to_owned()];
    for (group, version) in group_versions() {
        if !group.is_empty() {
            paths.push(format!("/apis/{group}"));
            paths.push(format!("/apis/{group}/{version}"));
        }
    }
    for path in [
        "/healthz",
        "/livez",
        "/metrics",
        "/openapi/v2",
        "/openapi/v3",
        "/readyz",
        "/version",
        SESSION_KEYS_PATH,
    ] {
        paths.push(path.to_owned());
    }
    paths.dedup();
    paths
}
