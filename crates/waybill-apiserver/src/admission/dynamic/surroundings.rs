//! What rules see around a request: the user's rights, the namespace, parameters.

use std::sync::Arc;

use serde_json::Value;
use waybill_policy::{
    cel::{Authorize, Question, Verdict},
    request::{
        AdmissionRequest, GroupVersionKind, GroupVersionResource, Operation, ParamError,
        ParamQuery, Surroundings, UserInfo, WhichParams,
    },
};

use super::super::{Admission, Attributes};
use crate::{
    admission,
    cache::ObjectKey,
    document::at,
    kinds::namespace::NAMESPACES,
    registry::{RESOURCES, Resource},
    request::{Action, ResourceTarget, Target, User},
};

/// The server, as rules ask it about one request.
pub(super) struct Around<'a> {
    pub(super) admission: &'a Admission,
    pub(super) user: &'a User,
}

impl Authorize for Around<'_> {
    fn authorize(&self, question: &Question) -> Verdict {
        let account;
        let user = match &question.service_account {
            None => self.user,
            Some((namespace, name)) => {
                account = service_account(namespace, name);
                &account
            }
        };
        let target = match &question.path {
            Some(path) => Target::Path(path.clone()),
            None => Target::Resource(ResourceTarget {
                group: question.group.clone(),
                version: "*".to_owned(),
                resource: question.resource.clone(),
                subresource: question.subresource.clone(),
                namespace: question.namespace.clone(),
                name: question.name.clone(),
            }),
        };
        let action = Action { verb: question.verb.clone(), target };
        let decision = self.admission.authorizer.authorize(user, &action, &[]);
        Verdict {
            allowed: decision.is_allowed(),
            reason: decision.reason().to_string(),
            error: None,
        }
    }
}

fn service_account(namespace: &str, name: &str) -> User {
    User {
        name: format!("system:serviceaccount:{namespace}:{name}"),
        groups: vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
            "system:authenticated".to_owned(),
        ],
        ..User::default()
    }
}

impl Surroundings for Around<'_> {
    fn namespace(&self, name: &str) -> Option<Arc<Value>> {
        self.admission.objects.namespace(name).map(Arc::new)
    }

    fn params(&self, query: &ParamQuery<'_>) -> Result<Vec<Arc<Value>>, ParamError> {
        let unknown = || {
            let (group, version) =
                query.kind.api_version.split_once('/').unwrap_or(("", &query.kind.api_version));
            ParamError::UnknownKind(format!("{group}/{version}, Kind={}", query.kind.kind))
        };
        let resource = kind_named(&query.kind.api_version, &query.kind.kind).ok_or_else(unknown)?;
        let cache = self.admission.objects.cache(resource).ok_or_else(unknown)?;
        let namespace = match (resource.is_namespaced(), query.namespace, query.request_namespace) {
            (false, "", _) => "",
            (false, _, _) => return Err(ParamError::NamespaceNotAllowed),
            (true, "", "") => return Err(ParamError::NoNamespace),
            (true, "", own) => own,
            (true, chosen, _) => chosen,
        };
        let found = match query.which {
            WhichParams::Named(name) => {
                cache.get(&ObjectKey::new(namespace, name)).into_iter().collect()
            }
            WhichParams::Selected(_) => cache.list(namespace, None, usize::MAX, |_| true).objects,
        };
        let documents = found.iter().map(|object| Arc::new(object.document()));
        Ok(match query.which {
            WhichParams::Named(_) => documents.collect(),
            WhichParams::Selected(selector) => documents
                .filter(|document| selector.matches(at(document, "/metadata/labels")))
                .collect(),
        })
    }
}

/// The resource whose objects have that kind, and are kept.
fn kind_named(api_version: &str, kind: &str) -> Option<&'static Resource> {
    RESOURCES.iter().copied().find(|resource| {
        resource.kind == kind && resource.is_stored() && resource.api_version() == api_version
    })
}

/// Everything of a request that reviews and expressions see, beside its objects.
pub(super) struct Facts {
    user: UserInfo,
    options: Value,
    name: String,
}

impl Facts {
    pub(super) fn of(attributes: &Attributes<'_>) -> Self {
        let User { name, uid, groups, extra } = attributes.user.clone();
        Self {
            user: UserInfo { username: name, uid, groups, extra },
            options: attributes.options_object(),
            name: attributes.name().to_owned(),
        }
    }

    /// The request as it is now.
    pub(super) fn request<'a>(&'a self, attributes: &'a Attributes<'_>) -> AdmissionRequest<'a> {
        let present = |value: &'a Value| if value.is_null() { None } else { Some(value) };
        AdmissionRequest {
            name: &self.name,
            namespace: namespace(attributes, &self.name),
            user: &self.user,
            object: present(&attributes.object),
            old_object: present(attributes.old),
            options: present(&self.options),
            ..bare(attributes, &NOBODY)
        }
    }
}

static NOBODY: std::sync::LazyLock<UserInfo> = std::sync::LazyLock::new(UserInfo::default);

/// What can be said of a request without looking at its objects, and without copying anything.
pub(super) fn outline<'a>(attributes: &'a Attributes<'_>) -> AdmissionRequest<'a> {
    bare(attributes, &NOBODY)
}

fn bare<'a>(attributes: &'a Attributes<'_>, user: &'a UserInfo) -> AdmissionRequest<'a> {
    let kind = attributes.kind();
    let Resource { group, version, plural, .. } = *attributes.resource;
    AdmissionRequest {
        operation: match attributes.operation {
            admission::Operation::Create => Operation::Create,
            admission::Operation::Update => Operation::Update,
            admission::Operation::Delete => Operation::Delete,
            admission::Operation::Connect => Operation::Connect,
        },
        kind: GroupVersionKind { group: kind.group, version: kind.version, kind: kind.kind },
        resource: GroupVersionResource { group, version, resource: plural },
        subresource: attributes.part(),
        name: attributes.path_name,
        namespace: attributes.namespace,
        user,
        object: None,
        old_object: None,
        options: None,
        dry_run: attributes.dry_run,
    }
}

/// A namespace is in itself, as upstream has it.
fn namespace<'a>(attributes: &'a Attributes<'_>, name: &'a str) -> &'a str {
    if attributes.resource.is(&NAMESPACES) { name } else { attributes.namespace }
}
