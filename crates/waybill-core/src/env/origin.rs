//! Where a variable came from.
//!
//! An [`Origin`] is born with its variable and travels with it through every merge; nobody attaches
//! one later. It never holds a value, so it may be shown, logged and stored.

use alloc::boxed::Box;
use core::fmt;

/// Who put a variable into an environment, and from what.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Origin {
    /// The API server, as with the audit id of an exec session.
    ApiServer,
    /// Whoever asked for the exec session.
    Caller,
    /// A key of a ConfigMap, by `configMapKeyRef` or `envFrom`.
    ConfigMap {
        /// Name of the ConfigMap.
        name: Box<str>,
        /// Key inside it.
        key: Box<str>,
    },
    /// A CSI driver, by `csiSecretRef`.
    Csi {
        /// Name of the driver.
        driver: Box<str>,
        /// Name of the ProviderClass.
        class: Box<str>,
        /// Key the driver was asked for.
        key: Box<str>,
    },
    /// A field of the pod, by `fieldRef`.
    Field {
        /// Path of the field.
        path: Box<str>,
    },
    /// A key of an env file, by `fileKeyRef`.
    File {
        /// Name of the pod volume.
        volume: Box<str>,
        /// Path inside the volume.
        path: Box<str>,
        /// Key inside the file.
        key: Box<str>,
    },
    /// The configuration of the image.
    Image,
    /// A `value` in the pod's own text.
    Literal,
    /// The node.
    Node,
    /// A resource of a container, by `resourceFieldRef`.
    Resource {
        /// Name of the resource, such as `limits.cpu`.
        resource: Box<str>,
    },
    /// The container runtime.
    Runtime,
    /// A key of a Secret, by `secretKeyRef` or `envFrom`.
    Secret {
        /// Name of the Secret.
        name: Box<str>,
        /// Key inside it.
        key: Box<str>,
    },
}

/// One line for people, as in the table of `waybill env`.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ApiServer => f.write_str("API server"),
            Self::Caller => f.write_str("caller"),
            Self::ConfigMap { name, key } => write!(f, "ConfigMap {name}, key {key}"),
            Self::Csi { driver, class, key } => write!(f, "CSI {driver}, class {class}, key {key}"),
            Self::Field { path } => write!(f, "field {path}"),
            Self::File { volume, path, key } => {
                write!(f, "file {path} in volume {volume}, key {key}")
            }
            Self::Image => f.write_str("image"),
            Self::Literal => f.write_str("pod spec"),
            Self::Node => f.write_str("node"),
            Self::Resource { resource } => write!(f, "resource {resource}"),
            Self::Runtime => f.write_str("runtime"),
            Self::Secret { name, key } => write!(f, "Secret {name}, key {key}"),
        }
    }
}
