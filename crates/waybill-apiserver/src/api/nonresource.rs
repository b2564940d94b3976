//! Paths that are no resources: discovery, OpenAPI, health, version and metrics.

use http::Method;
use serde_json::{Value, json};
use waybill_api::status::Status;

use super::Api;
use crate::{
    discovery,
    http::Answer,
    registry::{RESOURCES, Resource, group_versions},
    schema::{ServedKind, openapi_v2, openapi_v3, openapi_v3_index},
};

impl Api {
    pub(super) fn path(&self, path: &str, method: &Method) -> Result<Answer, Status> {
        if !matches!(*method, Method::GET | Method::HEAD) {
            return Err(Status::no_such_path());
        }
        if let Some(document) = discovery::document(path) {
            return Ok(Answer::value(&document));
        }
        match path.trim_end_matches('/') {
            "" => Ok(Answer::value(&json!({"paths": paths()}))),
            "/healthz" | "/livez" | "/readyz" => Ok(Answer::text("ok")),
            "/healthz/ping" | "/livez/ping" | "/readyz/ping" => Ok(Answer::text("ok")),
            "/metrics" => Ok(self.metrics.answer()),
            "/version" => Ok(Answer::value(&version(self.gates.emulated_version()))),
            "/openapi/v2" => Ok(Answer::value(&openapi_v2(&served(|_| true)))),
            "/openapi/v3" => Ok(Answer::value(&openapi_v3_index(&group_versions()))),
            path => openapi_group_version(path).ok_or_else(Status::no_such_path),
        }
    }
}

fn openapi_group_version(path: &str) -> Option<Answer> {
    let rest = path.strip_prefix("/openapi/v3/")?;
    let segments: Vec<&str> = rest.split('/').collect();
    let (group, version) = match segments.as_slice() {
        ["api", version] => ("", *version),
        ["apis", group, version] => (*group, *version),
        _ => return None,
    };
    let kinds = served(|resource| resource.group == group && resource.version == version);
    (!kinds.is_empty()).then(|| Answer::value(&openapi_v3(group, version, &kinds)))
}

fn served(wanted: impl Fn(&Resource) -> bool) -> Vec<ServedKind> {
    RESOURCES.iter().filter(|resource| wanted(resource)).map(ServedKind::from).collect()
}

/// What clients are told that we are; `kubectl version` compares it with itself.
fn version(emulated: waybill_api::gates::KubeVersion) -> Value {
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
        "platform": concat!("linux/", "amd64"),
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
    for path in ["/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/readyz", "/version"] {
        paths.push(path.to_owned());
    }
    paths.dedup();
    paths
}
