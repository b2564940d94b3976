//! Whether a pod may have a key of a class (CSI-13, OP-35).
//!
//! The API server asks at admission, the gate does so for API servers that are not ours, and the node
//! asks again at each start. All of them share this, so that none is more generous than another. The
//! right of the service account is a question of its own, since only a server can answer it (OP-34).

use waybill_core::provider::{AllowListError, KeyDenied, NamespaceDenied};

use super::{ProviderClass, RESOURCE};
use crate::pod::CsiSecretSelector;

impl ProviderClass {
    /// Refuses `reference` of a pod in `namespace` unless this class, which it names, allows it.
    pub fn check_use(
        &self,
        reference: &CsiSecretSelector,
        namespace: &str,
    ) -> Result<(), UseDenied> {
        if self.spec.driver != reference.driver {
            let (class, driver) = (self.metadata.name.clone(), reference.driver.clone());
            return Err(UseDenied::Driver { class, driver });
        }
        self.allowed_namespaces()?.check(namespace)?;
        self.allowed_fields()?.check(&reference.key)?;
        Ok(())
    }
}

/// Why a pod may not have a key of a class.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UseDenied {
    /// There is no such class.
    #[error("ProviderClass '{0}' not found")]
    NotFound(String),
    /// The pod names another driver than the class.
    #[error("ProviderClass '{class}' is not for driver '{driver}'")]
    Driver {
        /// The class.
        class: String,
        /// The driver that the pod names.
        driver: String,
    },
    /// A list of the class is not understood, so it allows nothing.
    #[error(transparent)]
    List(#[from] AllowListError),
    /// The class is not for this namespace.
    #[error(transparent)]
    Namespace(#[from] NamespaceDenied),
    /// The class does not serve this key.
    #[error(transparent)]
    Key(#[from] KeyDenied),
    /// The service account has no right to use the class.
    #[error(
        "access denied to ProviderClass \"{class}\": service account {namespace}/{account} needs \
         the verb \"use\" on {RESOURCE}.{group}"
    )]
    Right {
        /// The class.
        class: String,
        /// The API group of classes in this cluster.
        group: String,
        /// The namespace of the pod.
        namespace: String,
        /// The service account of the pod.
        account: String,
    },
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(driver: &str, key: &str, namespace: &str, expected: Result<(), &str>) {
        let class: ProviderClass = serde_json::from_value(json!({
            "metadata": {"name": "vault"},
            "spec": {"driver": "d", "parameters": {
                "allowedNamespaces": "a,b", "allowedFields": "app/*"}},
        }))
        .unwrap();
        let reference = CsiSecretSelector {
            driver: driver.to_owned(),
            key: key.to_owned(),
            ..CsiSecretSelector::default()
        };
        let found = class.check_use(&reference, namespace).map_err(|denied| denied.to_string());
        assert_eq!(found, expected.map_err(str::to_owned));
    }

    /// CSI-13
    #[test]
    fn driver_namespace_and_key_must_agree_csi_13_op_35() {
        check("d", "app/x", "a", Ok(()));
        check("e", "app/x", "a", Err("ProviderClass 'vault' is not for driver 'e'"));
        check("d", "app/x", "c", Err("Unauthorized: namespace not in allowedNamespaces"));
        check("d", "db/x", "b", Err("Key 'db/x' not in allowedFields pattern 'app/*'"));
        check("d", "app/../db", "b", Err("Key 'app/../db' not in allowedFields pattern 'app/*'"));
    }

    #[test]
    fn a_list_that_is_not_understood_allows_nothing() {
        let class: ProviderClass = serde_json::from_value(
            json!({"spec": {"driver": "d", "parameters": {"allowedNamespaces": "a,*"}}}),
        )
        .unwrap();
        let reference =
            CsiSecretSelector { driver: "d".to_owned(), ..CsiSecretSelector::default() };
        assert!(matches!(class.check_use(&reference, "a"), Err(UseDenied::List(_))));
    }
}
