//! A request and its surroundings, for tests.

use std::sync::{Arc, LazyLock};

use serde_json::{Value as Json, json};

use crate::{
    cel::{Authorize, Question, Verdict},
    request::{
        AdmissionRequest, GroupVersionKind, GroupVersionResource, Operation, ParamError,
        ParamQuery, Surroundings, UserInfo, WhichParams,
    },
};

/// Namespaces `default`, with a label, and `kube-system`; ConfigMaps as parameters.
#[derive(Default)]
pub(crate) struct World {
    pub(crate) params: Vec<Json>,
}

impl Authorize for World {
    fn authorize(&self, question: &Question) -> Verdict {
        Verdict { allowed: question.verb == "get", ..Verdict::default() }
    }
}

impl Surroundings for World {
    fn namespace(&self, name: &str) -> Option<Arc<Json>> {
        match name {
            "default" => Some(Arc::new(
                json!({"metadata": {"name": "default", "labels": {"env-names": "strict"}}}),
            )),
            "kube-system" => Some(Arc::new(json!({"metadata": {"name": "kube-system"}}))),
            _ => None,
        }
    }

    fn params(&self, query: &ParamQuery<'_>) -> Result<Vec<Arc<Json>>, ParamError> {
        if query.kind.kind != "ConfigMap" {
            return Err(ParamError::UnknownKind(format!(
                "{}, Kind={}",
                query.kind.api_version, query.kind.kind
            )));
        }
        let found = self.params.iter().filter(|param| match query.which {
            WhichParams::Named(name) => param["metadata"]["name"] == name,
            WhichParams::Selected(selector) => selector.matches(&param["metadata"]["labels"]),
        });
        Ok(found.cloned().map(Arc::new).collect())
    }
}

static USER: LazyLock<UserInfo> = LazyLock::new(|| UserInfo {
    username: "ann".to_owned(),
    groups: vec!["dev".to_owned()],
    ..UserInfo::default()
});

/// The creation of a pod in `default`.
pub(crate) fn pod_request(object: &Json) -> AdmissionRequest<'_> {
    AdmissionRequest {
        operation: Operation::Create,
        kind: GroupVersionKind { group: "", version: "v1", kind: "Pod" },
        resource: GroupVersionResource { group: "", version: "v1", resource: "pods" },
        subresource: "",
        name: "web",
        namespace: "default",
        user: &USER,
        object: Some(object),
        old_object: None,
        options: None,
        dry_run: false,
    }
}

/// `kubectl exec` with these variables.
pub(crate) fn exec_request(options: &Json) -> AdmissionRequest<'_> {
    AdmissionRequest {
        operation: Operation::Connect,
        kind: GroupVersionKind { group: "", version: "v1", kind: "PodExecOptions" },
        subresource: "exec",
        ..pod_request(options)
    }
}
