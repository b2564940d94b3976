//! What a class says about a request, before any call: it is there, it is the driver's, and it serves
//! this pod and these keys (OP-35). Pure, but for the object itself.

use std::{borrow::Cow, fmt};

use k8s_openapi::{ClusterResourceScope, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::Resource;
use serde::{Deserialize, Deserializer, de::Error};
use serde_json::Value;
use waybill_api::{
    pod::CsiSecretSelector,
    provider_class::{GROUP, KIND, ProviderClass, RESOURCE, VERSIONS},
};
use waybill_core::id::DriverName;

use super::error::CsiError;

/// Refuses what the class does not allow to pods of `namespace`.
pub(super) fn check<'a>(
    class: &ProviderClass,
    namespace: &str,
    selectors: impl Iterator<Item = &'a CsiSecretSelector>,
) -> Result<DriverName, CsiError> {
    for selector in selectors {
        class.check_use(selector, namespace)?;
    }
    // It becomes part of a path.
    let driver = &class.spec.driver;
    DriverName::parse(driver).map_err(|_| CsiError::DriverName { driver: driver.clone() })
}

/// A class as a watch shows it.
#[derive(Clone)]
pub(crate) struct WatchedClass {
    metadata: ObjectMeta,
    pub(super) class: ProviderClass,
}

impl<'de> Deserialize<'de> for WatchedClass {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let object = Value::deserialize(deserializer)?;
        let metadata = object.get("metadata").unwrap_or(&Value::Null);
        let metadata = ObjectMeta::deserialize(metadata).map_err(Error::custom)?;
        let class = ProviderClass::deserialize(object).map_err(Error::custom)?;
        Ok(Self { metadata, class })
    }
}

impl fmt::Debug for WatchedClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.class.fmt(f)
    }
}

impl Resource for WatchedClass {
    type DynamicType = ();
    type Scope = ClusterResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        KIND.into()
    }

    fn group((): &()) -> Cow<'_, str> {
        GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        let [stored, ..] = VERSIONS;
        stored.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        RESOURCE.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn refusal(parameters: Value, namespace: &str, driver: &str, key: &str) -> Option<String> {
        let mut class = json!({"metadata": {"name": "vault"}, "spec": {"driver": "d.example"}});
        class["spec"]["parameters"] = parameters;
        let class: ProviderClass = serde_json::from_value(class).unwrap();
        let selector: CsiSecretSelector = serde_json::from_value(json!({
            "driver": driver, "providerClassName": "vault", "key": key}))
        .unwrap();
        check(&class, namespace, [&selector].into_iter()).err().map(|error| error.to_string())
    }

    /// OP-35, CSI-13
    #[test]
    fn the_driver_and_the_namespace_and_the_key_must_be_those_of_the_class_csi_13() {
        let lists = || json!({"allowedNamespaces": "shop", "allowedFields": "secret/data/app/*"});
        assert_eq!(refusal(lists(), "shop", "d.example", "secret/data/app/db"), None);
        assert_eq!(
            refusal(lists(), "shop", "e.example", "secret/data/app/db").unwrap(),
            "ProviderClass 'vault' is not for driver 'e.example'"
        );
        assert_eq!(
            refusal(lists(), "shop2", "d.example", "secret/data/app/db").unwrap(),
            "Unauthorized: namespace not in allowedNamespaces"
        );
        for (key, shown) in [
            ("secret/data/db", "secret/data/db"),
            ("secret/data/app/a/b", "secret/data/app/a/b"),
            ("secret/data/app/../db", "secret/data/app/../db"),
            ("secret/data/app/%2e%2e", "secret/data/app/%2e%2e"),
            ("xsecret/data/app/db", "xsecret/data/app/db"),
        ] {
            assert_eq!(
                refusal(lists(), "shop", "d.example", key).unwrap(),
                format!("Key '{shown}' not in allowedFields pattern 'secret/data/app/*'")
            );
        }
    }

    /// A list that is not understood allows nothing.
    #[test]
    fn a_class_with_a_bad_list_serves_nobody() {
        let told = refusal(json!({"allowedNamespaces": "a,,b"}), "a", "d.example", "k").unwrap();
        assert_eq!(told, "item 2 is empty");
        assert!(refusal(json!({"allowedFields": "a/["}), "a", "d.example", "a/x").is_some());
    }
}
