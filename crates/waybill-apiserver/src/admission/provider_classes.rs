//! A pod may use a provider class only if the class, its own namespace and its service account agree
//! (CSI-13, OP-34, OP-35). The node and the driver ask again; this is for an early, clear answer.

use serde_json::Value;
use waybill_api::{
    pod::CsiSecretSelector,
    provider_class::{GROUP, ProviderClass, UseDenied},
    status::Status,
};

use super::{Admission, Attributes, Operation, ephemeral::added_containers, read_variables};
use crate::{
    audit::CSI_DENIED,
    authz::provider_class::{service_account, use_of},
    cache::ObjectKey,
    document::at,
    kinds::{pod::PODS, provider_class::PROVIDER_CLASSES},
};

impl Admission {
    /// Checks the containers of a new pod, and those that are added to one.
    pub(super) fn check_provider_classes(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        let pod = &attributes.object;
        let spec = match attributes.operation {
            Operation::Create if attributes.is_main(&PODS) => read_variables(pod)?,
            Operation::Update if attributes.is_part(&PODS, "ephemeralcontainers") => {
                added_containers(attributes.old, pod)?
            }
            _ => return Ok(()),
        };
        for source in spec.sources() {
            if let Some(reference) = &source.csi_secret_ref {
                self.check_reference(attributes.namespace, pod, reference).map_err(|why| {
                    let why = why.to_string();
                    attributes.remarks.notes.add(CSI_DENIED, &why);
                    attributes.forbidden(&why)
                })?;
            }
        }
        Ok(())
    }

    fn check_reference(
        &self,
        namespace: &str,
        pod: &Value,
        reference: &CsiSecretSelector,
    ) -> Result<(), UseDenied> {
        let name = &reference.provider_class_name;
        let class = self.provider_class(name).ok_or_else(|| UseDenied::NotFound(name.clone()))?;
        class.check_use(reference, namespace)?;
        let account = at(pod, "/spec/serviceAccountName").as_str().unwrap_or("default");
        if self.may_use(namespace, account, name) {
            return Ok(());
        }
        Err(UseDenied::Right {
            class: name.clone(),
            group: GROUP.to_owned(),
            namespace: namespace.to_owned(),
            account: account.to_owned(),
        })
    }

    fn provider_class(&self, name: &str) -> Option<ProviderClass> {
        let object = self.objects.cache(&PROVIDER_CLASSES)?.get(&ObjectKey::new("", name))?;
        serde_json::from_slice(&object.json()).ok()
    }

    fn may_use(&self, namespace: &str, account: &str, class: &str) -> bool {
        let user = service_account(namespace, account);
        self.authorizer.authorize(&user, &use_of(class, namespace), &[]).is_allowed()
    }
}
