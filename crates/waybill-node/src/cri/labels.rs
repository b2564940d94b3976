//! Names under which the node finds its own again, in the words of kubelets, so that tools know them.

pub(crate) const POD_NAME: &str = "io.kubernetes.pod.name";
pub(crate) const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
pub(crate) const POD_UID: &str = "io.kubernetes.pod.uid";
pub(crate) const CONTAINER_NAME: &str = "io.kubernetes.container.name";

pub(crate) const CONTAINER_HASH: &str = "io.kubernetes.container.hash";
pub(crate) const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
pub(crate) const MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
pub(crate) const MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
pub(crate) const GRACE: &str = "io.kubernetes.pod.terminationGracePeriod";
pub(crate) const SOURCE: &str = "kubernetes.io/config.source";

/// Which node made a sandbox. Several may share a runtime, and none touches what is not its own.
pub(crate) const NODE: &str = "waybill.dev/node";
/// Names of variables whose values are shown nowhere, as a list of names (D9).
pub(crate) const SENSITIVE: &str = "waybill.dev/sensitive-env";
/// Which words of the command and the arguments hold such values, as `command[0],args[2]`.
pub(crate) const SENSITIVE_ARGS: &str = "waybill.dev/sensitive-args";
