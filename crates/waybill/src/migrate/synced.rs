//! What a SecretProviderClass says: where its provider reads, and which Secrets it keeps in step.

use std::collections::BTreeMap;

use serde_json::Value;

use super::document::{items, text, text_map};

/// The API group of the kind.
pub(super) const GROUP: &str = "secrets-store.csi.x-k8s.io";

/// The CSI driver whose volumes name such classes.
pub(super) const DRIVER: &str = "secrets-store.csi.k8s.io";

/// A SecretProviderClass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SyncedClass {
    pub(super) namespace: String,
    pub(super) name: String,
    /// `vault`, `aws`, `azure`, `gcp` or another.
    pub(super) provider: String,
    pub(super) parameters: BTreeMap<String, String>,
    pub(super) secrets: Vec<SyncedSecret>,
}

/// A Secret that is made of mounted objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SyncedSecret {
    pub(super) name: String,
    /// Key in the Secret, and the name of the mounted object.
    pub(super) keys: Vec<(String, String)>,
}

impl SyncedClass {
    /// Reads `object` if it is one; `namespace` is for objects that name none.
    pub(super) fn read(object: &Value, namespace: &str) -> Option<Self> {
        let group = text(object, "/apiVersion")?.split_once('/')?.0;
        if group != GROUP || text(object, "/kind") != Some("SecretProviderClass") {
            return None;
        }
        let secret = |it: &Value| {
            let key = |it: &Value| {
                Some((text(it, "/key")?.to_owned(), text(it, "/objectName")?.to_owned()))
            };
            let keys = items(it, "/data").iter().filter_map(key).collect();
            Some(SyncedSecret { name: text(it, "/secretName")?.to_owned(), keys })
        };
        Some(Self {
            namespace: text(object, "/metadata/namespace").unwrap_or(namespace).to_owned(),
            name: text(object, "/metadata/name")?.to_owned(),
            provider: text(object, "/spec/provider").unwrap_or_default().to_owned(),
            parameters: text_map(object, "/spec/parameters"),
            secrets: items(object, "/spec/secretObjects").iter().filter_map(secret).collect(),
        })
    }

    /// As reports name it.
    pub(super) fn title(&self) -> String {
        format!("SecretProviderClass {}/{}", self.namespace, self.name)
    }

    /// The object behind a key of a Secret.
    pub(super) fn object_of(&self, secret: &str, key: &str) -> Option<&str> {
        let secret = self.secrets.iter().find(|it| it.name == secret)?;
        secret.keys.iter().find(|(it, _)| it == key).map(|(_, object)| object.as_str())
    }
}
