//! Columns of tables.

use serde_json::{Value, json};

/// One column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    name: &'static str,
    /// An OpenAPI type: `string`, `integer`, `boolean` or `date`.
    kind: &'static str,
    /// `name` marks the column that identifies the object.
    format: &'static str,
    description: &'static str,
    /// Columns above 0 are shown by `-o wide` only.
    priority: u8,
}

impl Column {
    pub(crate) const fn new(name: &'static str, description: &'static str) -> Self {
        Self { name, kind: "string", format: "", description, priority: 0 }
    }

    pub(crate) const fn kind(self, kind: &'static str) -> Self {
        Self { kind, ..self }
    }

    pub(crate) const fn wide(self) -> Self {
        Self { priority: 1, ..self }
    }

    /// The column as a `TableColumnDefinition`, whose fields are all required.
    pub(crate) fn definition(&self) -> Value {
        json!({
            "name": self.name,
            "type": self.kind,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        })
    }
}

pub(crate) const NAME: Column =
    Column { format: "name", ..Column::new("Name", "Name of the object, unique among its kind.") };

pub(crate) const AGE: Column = Column::new("Age", "How long ago the object was created.");

pub(crate) const DEFAULT: &[Column] = &[NAME, AGE];

pub(crate) const PODS: &[Column] = &[
    NAME,
    Column::new("Ready", "How many of the pod's containers are ready."),
    Column::new("Status", "What the containers of this pod are doing, in a word."),
    Column::new("Restarts", "How often the containers restarted, and when last."),
    AGE,
    Column::new("IP", "Address of the pod.").wide(),
    Column::new("Node", "Node that the pod is bound to.").wide(),
    Column::new("Nominated Node", "Node where others make room for the pod.").wide(),
    Column::new("Readiness Gates", "How many of the pod's readiness gates are open.").wide(),
];

pub(crate) const NODES: &[Column] = &[
    NAME,
    Column::new("Status", "Whether the node is ready, and whether it takes pods."),
    Column::new("Roles", "The roles that the node's labels give it."),
    AGE,
    Column::new("Version", "Version of the kubelet."),
    Column::new("Internal-IP", "Address inside the cluster.").wide(),
    Column::new("External-IP", "Address from outside the cluster.").wide(),
    Column::new("OS-Image", "Operating system of the node.").wide(),
    Column::new("Kernel-Version", "Kernel of the node.").wide(),
    Column::new("Container-Runtime", "Container runtime and its version.").wide(),
];

pub(crate) const NAMESPACES: &[Column] =
    &[NAME, Column::new("Status", "Phase of the namespace."), AGE];

pub(crate) const CONFIG_MAPS: &[Column] = &[NAME, Column::new("Data", "Number of entries."), AGE];

pub(crate) const SECRETS: &[Column] = &[
    NAME,
    Column::new("Type", "What the secret is for."),
    Column::new("Data", "Number of entries."),
    AGE,
];

pub(crate) const EVENTS: &[Column] = &[
    Column::new("Last Seen", "When the event happened last."),
    Column::new("Type", "Normal or Warning."),
    Column::new("Reason", "Why the event happened, in a word."),
    Column::new("Object", "What the event is about."),
    Column::new("Subobject", "Which part of the object it is about.").wide(),
    Column::new("Source", "Who reported it.").wide(),
    Column::new("Message", "What happened."),
    Column::new("First Seen", "When the event happened first.").wide(),
    Column::new("Count", "How often it happened.").wide(),
    Column { priority: 1, ..NAME },
];

pub(crate) const LEASES: &[Column] = &[NAME, Column::new("Holder", "Who holds the lease."), AGE];

pub(crate) const ROLES: &[Column] =
    &[NAME, Column::new("Created At", "When the object was created.").kind("date")];

pub(crate) const BINDINGS: &[Column] = &[
    NAME,
    Column::new("Role", "The role that is granted."),
    AGE,
    Column::new("Users", "Users to whom it is granted.").wide(),
    Column::new("Groups", "Groups to whom it is granted.").wide(),
    Column::new("ServiceAccounts", "Service accounts to whom it is granted.").wide(),
];

pub(crate) const POD_TEMPLATES: &[Column] = &[
    NAME,
    Column::new("Containers", "Names of the containers."),
    Column::new("Images", "Images of the containers."),
    Column::new("Pod Labels", "Labels of the pods."),
];

pub(crate) const CSI_DRIVERS: &[Column] = &[
    NAME,
    Column::new("AttachRequired", "Whether volumes are attached before they are mounted.")
        .kind("boolean"),
    Column::new("PodInfoOnMount", "Whether the driver is told about the pod.").kind("boolean"),
    Column::new("StorageCapacity", "Whether scheduling asks for the driver's capacity.")
        .kind("boolean"),
    Column::new("TokenRequests", "Audiences of the tokens that the driver gets."),
    Column::new("RequiresRepublish", "Whether volumes are published again and again.")
        .kind("boolean"),
    Column::new("Modes", "The volume modes that the driver supports."),
    AGE,
];

pub(crate) const CSI_NODES: &[Column] =
    &[NAME, Column::new("Drivers", "Number of drivers on the node.").kind("integer"), AGE];

pub(crate) const PROVIDER_CLASSES: &[Column] = &[
    NAME,
    Column::new("Driver", "The CSI driver that serves the class."),
    Column::new("Namespaces", "Namespaces whose pods may use the class."),
    AGE,
];
