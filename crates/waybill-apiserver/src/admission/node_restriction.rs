//! What nodes may write: finds what the rules of [`crate::authz::node::restriction`] judge by.

use serde_json::Value;
use waybill_api::status::{Status, Target};

use super::{Admission, forbidden};
use crate::{
    authz::{
        forbidden::object_message,
        node::{
            audience::pod_uses_audience,
            node_of,
            restriction::{
                AskingNode, NodeRestrictionError, NodeWrite, check_token, requested_audience,
            },
        },
    },
    cache::ObjectKey,
    document::metadata,
    registry::find,
    request::{self, Action, ResourceTarget, User},
    rest::{Change, Part},
    route::ResourceRoute,
};

/// The right to ask for tokens for an audience that no pod uses, as upstream names it.
const AUDIENCE_VERB: &str = "request-serviceaccounts-token-audience";

impl Admission {
    pub(crate) fn restrict_node_update(
        &self,
        change: Change<'_>,
        part: Part,
        new: &Value,
        old: &Value,
    ) -> Result<(), Status> {
        self.restrict_node(change, part.subresource(), NodeWrite::Update { new, old })
    }

    /// Refuses what a node may not write; all others pass.
    pub(super) fn restrict_node(
        &self,
        change: Change<'_>,
        subresource: &str,
        write: NodeWrite<'_>,
    ) -> Result<(), Status> {
        let Some(name) = node_of(change.user) else { return Ok(()) };
        let target =
            ResourceTarget { subresource: subresource.to_owned(), ..change.route.target() };
        let uid = self.find("", "nodes", "", name);
        let uid = uid.as_ref().map(|node| metadata(node, "uid")).unwrap_or_default();
        let asking = AskingNode { name, uid };
        asking.check(&target, write).map_err(|error| {
            let named = match write {
                NodeWrite::Create(object) | NodeWrite::Delete(object) => metadata(object, "name"),
                NodeWrite::Update { old, .. } => metadata(old, "name"),
            };
            forbidden(change, named, &error.to_string())
        })
    }

    /// Refuses a node the tokens of other pods than its own, and of other audiences than theirs. The
    /// API server itself is meant by the audiences `own`.
    pub(crate) fn restrict_node_token(
        &self,
        user: &User,
        account: &ResourceRoute,
        request: &Value,
        own: &[String],
    ) -> Result<(), Status> {
        let Some(node) = node_of(user) else { return Ok(()) };
        let refused = |error: NodeRestrictionError| {
            let message = object_message("", "serviceaccounts", &account.name, &error.to_string());
            Status::forbidden(account.status_target(), message)
        };
        let find_pod = |name: &str| self.find("", "pods", &account.namespace, name);
        let Some(pod) = check_token(node, request, find_pod).map_err(refused)? else {
            let name = request.pointer("/spec/boundObjectRef/name").and_then(Value::as_str);
            let target = Target { group: "", resource: "pods", name: name.unwrap_or_default() };
            return Err(Status::not_found(target));
        };
        let audience = requested_audience(request, own).map_err(refused)?;
        let driver = |name: &str| self.find("storage.k8s.io", "csidrivers", "", name);
        if pod_uses_audience(&pod, audience, own, driver)
            || self.may_ask_for(user, account, audience)
        {
            return Ok(());
        }
        let (audience, user) = (audience.to_owned(), user.name.clone());
        Err(refused(NodeRestrictionError::TokenAudience { audience, user }))
    }

    fn may_ask_for(&self, user: &User, account: &ResourceRoute, audience: &str) -> bool {
        let target = ResourceTarget {
            group: String::new(),
            version: "v1".to_owned(),
            resource: audience.to_owned(),
            subresource: String::new(),
            namespace: account.namespace.clone(),
            name: account.name.clone(),
        };
        let target = request::Target::Resource(target);
        let action = Action { verb: AUDIENCE_VERB.to_owned(), target };
        !audience.is_empty() && self.authorizer.authorize(user, &action, &[]).is_allowed()
    }

    fn find(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        let cache = self.objects.cache(find(group, "v1", plural)?)?;
        Some(cache.get(&ObjectKey::new(namespace, name))?.document())
    }
}
