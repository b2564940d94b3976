//! A pod may use a provider class only if the class, its own namespace and its service account agree
//! (CSI-13, OP-34, OP-35). The node and the driver ask again; this is for an early, clear answer.

use serde_json::Value;
use waybill_api::{
    pod::{CsiSecretSelector, PodEnvSpec},
    provider_class::{GROUP, ProviderClass, RESOURCE, UseDenied, VERSIONS},
    status::Status,
};

use super::{Admission, forbidden};
use crate::{
    audit::CSI_DENIED,
    authz::provider_class::{service_account, use_of},
    cache::ObjectKey,
    document::{at, metadata},
    registry::find,
    rest::Change,
};

impl Admission {
    /// Checks the containers of `pod` that are in `spec`.
    pub(super) fn check_provider_classes(
        &self,
        change: Change<'_>,
        spec: &PodEnvSpec,
        pod: &Value,
    ) -> Result<(), Status> {
        for source in spec.sources() {
            if let Some(reference) = &source.csi_secret_ref {
                self.check_reference(change, pod, reference).map_err(|why| {
                    let why = why.to_string();
                    change.notes.add(CSI_DENIED, &why);
                    forbidden(change, metadata(pod, "name"), &why)
                })?;
            }
        }
        Ok(())
    }

    fn check_reference(
        &self,
        change: Change<'_>,
        pod: &Value,
        reference: &CsiSecretSelector,
    ) -> Result<(), UseDenied> {
        let name = &reference.provider_class_name;
        let class = self.provider_class(name).ok_or_else(|| UseDenied::NotFound(name.clone()))?;
        let namespace = &change.route.namespace;
        class.check_use(reference, namespace)?;
        let account = at(pod, "/spec/serviceAccountName").as_str().unwrap_or("default");
        if self.may_use(namespace, account, name) {
            return Ok(());
        }
        Err(UseDenied::Right {
            class: name.clone(),
            group: GROUP.to_owned(),
            namespace: namespace.clone(),
            account: account.to_owned(),
        })
    }

    fn provider_class(&self, name: &str) -> Option<ProviderClass> {
        let [version, ..] = VERSIONS;
        let resource = find(GROUP, version, RESOURCE)?;
        let object = self.objects.cache(resource)?.get(&ObjectKey::new("", name))?;
        serde_json::from_slice(&object.json()).ok()
    }

    fn may_use(&self, namespace: &str, account: &str, class: &str) -> bool {
        let user = service_account(namespace, account);
        self.authorizer.authorize(&user, &use_of(class, namespace), &[]).is_allowed()
    }
}
