//! What nodes may write: finds what the rules of [`crate::authz::node::restriction`] judge by.

use serde_json::Value;
use waybill_api::status::{Status, Target};

use super::{Admission, Attributes, Operation};
use crate::{
    authz::node::{
        audience::pod_uses_audience,
        node_of,
        restriction::{
            AskingNode, NodeRestrictionError, NodeWrite, check_token, requested_audience,
        },
    },
    cache::ObjectKey,
    document::{metadata, text},
    kinds::{csi_driver::CSI_DRIVERS, node::NODES, pod::PODS, service_account::SERVICE_ACCOUNTS},
    registry::Resource,
    request::{self, Action, ResourceTarget},
};

/// The right to ask for tokens for an audience that no pod uses, as upstream names it.
const AUDIENCE_VERB: &str = "request-serviceaccounts-token-audience";

impl Admission {
    pub(super) fn restrict_node_update(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        match attributes.operation {
            Operation::Update => {
                let Attributes { old, object: ref new, .. } = *attributes;
                self.restrict(attributes, attributes.part(), NodeWrite::Update { new, old })
            }
            Operation::Create | Operation::Delete | Operation::Connect => Ok(()),
        }
    }

    /// Refuses what a node may not make or delete; all others pass.
    pub(super) fn restrict_node(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        if node_of(attributes.user).is_none() {
            return Ok(());
        }
        if attributes.is_part(&PODS, "eviction") {
            // It deletes the pod; that there is none is told by whoever looks for it.
            let pod = self.find(&PODS, attributes.namespace, attributes.path_name);
            let write = |pod: &Value| self.restrict(attributes, "", NodeWrite::Delete(pod));
            return pod.as_ref().map_or(Ok(()), write);
        }
        let part = attributes.part();
        match attributes.operation {
            Operation::Create => {
                self.restrict(attributes, part, NodeWrite::Create(&attributes.object))
            }
            Operation::Delete => self.restrict(attributes, part, NodeWrite::Delete(attributes.old)),
            Operation::Connect | Operation::Update => Ok(()),
        }
    }

    fn restrict(
        &self,
        attributes: &Attributes<'_>,
        subresource: &str,
        write: NodeWrite<'_>,
    ) -> Result<(), Status> {
        let Some(name) = node_of(attributes.user) else { return Ok(()) };
        let target = ResourceTarget {
            group: attributes.resource.group.to_owned(),
            version: attributes.resource.version.to_owned(),
            resource: attributes.resource.plural.to_owned(),
            subresource: subresource.to_owned(),
            namespace: attributes.namespace.to_owned(),
            name: attributes.path_name.to_owned(),
        };
        let uid = self.find(&NODES, "", name);
        let uid = uid.as_ref().map(|node| metadata(node, "uid")).unwrap_or_default();
        let asking = AskingNode { name, uid };
        asking.check(&target, write).map_err(|error| attributes.forbidden(&error.to_string()))
    }

    /// Refuses a node the tokens of other pods than its own, and of other audiences than theirs.
    pub(super) fn restrict_node_token(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        let Attributes { namespace, object: ref request, .. } = *attributes;
        let Some(node) = node_of(attributes.user) else { return Ok(()) };
        if !attributes.is_part(&SERVICE_ACCOUNTS, "token") {
            return Ok(());
        }
        let refused = |error: NodeRestrictionError| attributes.forbidden(&error.to_string());
        let find_pod = |name: &str| self.find(&PODS, namespace, name);
        let Some(pod) = check_token(node, request, find_pod).map_err(refused)? else {
            let name = text(request, "/spec/boundObjectRef/name");
            return Err(Status::not_found(Target { group: "", resource: PODS.plural, name }));
        };
        let own = &self.audiences;
        let audience = requested_audience(request, own).map_err(refused)?;
        let driver = |name: &str| self.find(&CSI_DRIVERS, "", name);
        if pod_uses_audience(&pod, audience, own, driver) || self.may_ask_for(attributes, audience)
        {
            return Ok(());
        }
        let (audience, user) = (audience.to_owned(), attributes.user.name.clone());
        Err(refused(NodeRestrictionError::TokenAudience { audience, user }))
    }

    fn may_ask_for(&self, attributes: &Attributes<'_>, audience: &str) -> bool {
        let target = ResourceTarget {
            group: String::new(),
            version: "v1".to_owned(),
            resource: audience.to_owned(),
            subresource: String::new(),
            namespace: attributes.namespace.to_owned(),
            name: attributes.path_name.to_owned(),
        };
        let target = request::Target::Resource(target);
        let action = Action { verb: AUDIENCE_VERB.to_owned(), target };
        let allowed = || self.authorizer.authorize(attributes.user, &action, &[]).is_allowed();
        !audience.is_empty() && allowed()
    }

    fn find(&self, resource: &'static Resource, namespace: &str, name: &str) -> Option<Value> {
        let cache = self.objects.cache(resource)?;
        Some(cache.get(&ObjectKey::new(namespace, name))?.document())
    }
}
