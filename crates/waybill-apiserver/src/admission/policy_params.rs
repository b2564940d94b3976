//! Who writes a policy may read its parameters: an expression can tell what is in them.

use serde_json::Value;
use waybill_api::status::Status;

use super::{Admission, Attributes, Operation};
use crate::{
    cache::ObjectKey,
    document::{at, text},
    kinds::{
        admission_policy::VALIDATING_ADMISSION_POLICIES,
        admission_policy_binding::VALIDATING_ADMISSION_POLICY_BINDINGS,
    },
    registry::RESOURCES,
    request::{Action, ResourceTarget, Target},
};

/// Stands for every namespace, and every name.
const ALL: &str = "*";

impl Admission {
    /// Whoever names parameters in a policy, or the objects in a binding, has the right to read them. As
    /// upstream, only what is new is judged.
    pub(super) fn check_policy_params(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        if !matches!(attributes.operation, Operation::Create | Operation::Update) {
            return Ok(());
        }
        let (old, new) = (attributes.old, &attributes.object);
        if attributes.is_main(&VALIDATING_ADMISSION_POLICIES) {
            let kind = at(new, "/spec/paramKind");
            if kind.is_null() || kind == at(old, "/spec/paramKind") {
                return Ok(());
            }
            return self.may_read(attributes, kind, ALL, ALL);
        }
        if !attributes.is_main(&VALIDATING_ADMISSION_POLICY_BINDINGS)
            || at(new, "/spec/paramRef").is_null()
            || at(new, "/spec") == at(old, "/spec")
        {
            return Ok(());
        }
        let all_if_empty = |name: &'_ str| if name.is_empty() { ALL } else { name }.to_owned();
        let name = all_if_empty(text(new, "/spec/paramRef/name"));
        let namespace = all_if_empty(text(new, "/spec/paramRef/namespace"));
        let key = ObjectKey::new("", text(new, "/spec/policyName"));
        let policies = self.objects.cache(&VALIDATING_ADMISSION_POLICIES);
        let policy = policies.and_then(|policies| policies.get(&key));
        let policy = policy.map(|policy| policy.document()).unwrap_or_default();
        // Without a policy nobody knows what kind is meant; it is judged as any.
        self.may_read(attributes, at(&policy, "/spec/paramKind"), &namespace, &name)
    }

    fn may_read(
        &self,
        attributes: &Attributes<'_>,
        kind: &Value,
        namespace: &str,
        name: &str,
    ) -> Result<(), Status> {
        let (api_version, kind) = (text(kind, "/apiVersion"), text(kind, "/kind"));
        let found = RESOURCES.iter().copied().find(|resource| {
            resource.kind == kind && resource.is_stored() && resource.api_version() == api_version
        });
        let (group, version, resource) = match found {
            Some(found) => (found.group, found.version, found.plural),
            None => (ALL, ALL, ALL),
        };
        let is_clustered = found.is_some_and(|found| !found.is_namespaced());
        let target = ResourceTarget {
            group: group.to_owned(),
            version: version.to_owned(),
            resource: resource.to_owned(),
            namespace: if is_clustered { String::new() } else { namespace.to_owned() },
            name: name.to_owned(),
            ..ResourceTarget::default()
        };
        let action = Action { verb: "get".to_owned(), target: Target::Resource(target) };
        if self.authorizer.authorize(attributes.user, &action, &[]).is_allowed() {
            return Ok(());
        }
        Err(attributes.forbidden(&format!(
            "user {:?} must have \"get\" permission on the parameters of the policy ({resource}, \
             namespace {namespace:?}, name {name:?})",
            attributes.user.name
        )))
    }
}
