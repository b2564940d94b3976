//! `pods/binding`: puts a pod on a node.

use serde_json::Value;
use waybill_api::status::{Status, Subject};

use super::{Change, Part, Writer};
use crate::{document::time, kinds, route::ResourceRoute};

impl Writer {
    /// Binds the pod that `change` names as `binding` says, which has been decoded.
    pub(crate) async fn bind(&self, change: Change<'_>, binding: Value) -> Result<(), Status> {
        let route = change.route.with_subresource("binding");
        let check = |binding: &Value| {
            let errors = kinds::validate_binding(binding);
            let subject = Subject { group: "", kind: "Binding", name: &route.name };
            if errors.is_empty() { Ok(()) } else { Err(Status::invalid(subject, &errors)) }
        };
        let binding = self.admit_create(Change { route: &route, ..change }, binding, check).await?;
        let pod: ResourceRoute = route.with_subresource("");
        let now = time((self.clock)());
        let bound = |old: &Value| {
            let mut new = old.clone();
            kinds::bind(&mut new, &binding, &now)
                .map_err(|error| Status::conflict(pod.status_target(), error.to_string()))?;
            Ok(new)
        };
        self.update(Change { route: &pod, ..change }, Part::Binding, bound).await.map(drop)
    }
}
