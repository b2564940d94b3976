//! Messages of `core_v1`. Written by `cargo xtask gen` from k8s-pb 0.9.0; do not edit.

use crate::protobuf::table::{Message, Type::{Bool, Bytes, Int32, Int64, IntOrString, Message as Nested, MicroTime, Quantity, Text, Time}, field, inline, kept, list, map};

pub(crate) static AFFINITY: Message = Message(&[
    kept(1, "nodeAffinity", Nested(&NODE_AFFINITY)),
    kept(2, "podAffinity", Nested(&POD_AFFINITY)),
    kept(3, "podAntiAffinity", Nested(&POD_ANTI_AFFINITY)),
]);

pub(crate) static APP_ARMOR_PROFILE: Message = Message(&[
    kept(1, "type", Text),
    kept(2, "localhostProfile", Text),
]);

pub(crate) static ATTACHED_VOLUME: Message = Message(&[
    kept(1, "name", Text),
    kept(2, "devicePath", Text),
]);

pub(crate) static AWS_ELASTIC_BLOCK_STORE_VOLUME_SOURCE: Message = Message(&[
    kept(1, "volumeID", Text),
    field(2, "fsType", Text),
    field(3, "partition", Int32),
    field(4, "readOnly", Bool),
]);

pub(crate) static AZURE_DISK_VOLUME_SOURCE: Message = Message(&[
    kept(1, "diskName", Text),
    kept(2, "diskURI", Text),
    kept(3, "cachingMode", Text),
    kept(4, "fsType", Text),
    kept(5, "readOnly", Bool),
    kept(6, "kind", Text),
]);

pub(crate) static AZURE_FILE_VOLUME_SOURCE: Message = Message(&[
    kept(1, "secretName", Text),
    kept(2, "shareName", Text),
    field(3, "readOnly", Bool),
]);

pub(crate) static BINDING: Message = Message(&[
    field(1, "metadata", Nested(&super::meta_v1::OBJECT_META)),
    field(2, "target", Nested(&OBJECT_REFERENCE)),
]);

pub(crate) static CSI_VOLUME_SOURCE: Message = Message(&[
    kept(1, "driver", Text),
    kept(2, "readOnly", Bool),
    kept(3, "fsType", Text),
    map(4, "volumeAttributes", Text),
    kept(5, "nodePublishSecretRef", Nested(&LOCAL_OBJECT_REFERENCE)),
]);

pub(crate) static CAPABILITIES: Message = Message(&[
    list(1, "add", Text),
    list(2, "drop", Text),
]);

pub(crate) static CEPH_FS_VOLUME_SOURCE: Message = Message(&[
    list(1, "monitors", Text),
    field(2, "path", Text),
    field(3, "user", Text),
    field(4, "secretFile", Text),
    kept(5, "secretRef", Nested(&LOCAL_OBJECT_REFERENCE)),
    field(6, "readOnly", Bool),
]);

pub(crate) static CINDER_VOLUME_SOURCE: Message = Message(&[
    kept(1, "volumeID", Text),
    field(2, "fsType", Text),
    field(3, "readOnly", Bool),
    kept(4, "secretRef", Nested(&LOCAL_OBJECT_REFERENCE)),
]);

pub(crate) static CLIENT_IP_CONFIG: Message = Message(&[
    kept(1, "timeoutSeconds", Int32),
]);

pub(crate) static CLUSTER_TRUST_BUNDLE_PROJECTION: Message = Message(&[
    kept(1, "name", Text),
    kept(2, "signerName", Text),
    kept(3, "labelSelector", Nested(&super::meta_v1::LABEL_SELECTOR)),
    kept(4, "path", Text),
    kept(5, "optional", Bool),
]);

pub(crate) static CONFIG_MAP: Message = Message(&[
    field(1, "metadata", Nested(&super::meta_v1::OBJECT_META)),
    map(2, "data", Text),
    map(3, "binaryData", Bytes),
    kept(4, "immutable", Bool),
]);

pub(crate) static CONFIG_MAP_ENV_SOURCE: Message = Message(&[
    inline(1, &LOCAL_OBJECT_REFERENCE),
    kept(2, "optional", Bool),
]);

pub(crate) static CONFIG_MAP_KEY_SELECTOR: Message = Message(&[
    inline(1, &LOCAL_OBJECT_REFERENCE),
    kept(2, "key", Text),
    kept(3, "optional", Bool),
]);

pub(crate) static CONFIG_MAP_NODE_CONFIG_SOURCE: Message = Message(&[
    kept(1, "namespace", Text),
    kept(2, "name", Text),
    field(3, "uid", Text),
    field(4, "resourceVersion", Text),
    kept(5, "kubeletConfigKey", Text),
]);

pub(crate) static CONFIG_MAP_PROJECTION: Message = Message(&[
    inline(1, &LOCAL_OBJECT_REFERENCE),
    list(2, "items", Nested(&KEY_TO_PATH)),
    kept(4, "optional", Bool),
]);

pub(crate) static CONFIG_MAP_VOLUME_SOURCE: Message = Message(&[
    inline(1, &LOCAL_OBJECT_REFERENCE),
    list(2, "items", Nested(&KEY_TO_PATH)),
    kept(3, "defaultMode", Int32),
    kept(4, "optional", Bool),
]);

pub(crate) static CONTAINER: Message = Message(&[
    kept(1, "name", Text),
    field(2, "image", Text),
    list(3, "command", Text),
    list(4, "args", Text),
    field(5, "workingDir", Text),
    list(6, "ports", Nested(&CONTAINER_PORT)),
    list(7, "env", Nested(&ENV_VAR)),
    field(8, "resources", Nested(&RESOURCE_REQUIREMENTS)),
    list(9, "volumeMounts", Nested(&VOLUME_MOUNT)),
    kept(10, "livenessProbe", Nested(&PROBE)),
    kept(11, "readinessProbe", Nested(&PROBE)),
    kept(12, "lifecycle", Nested(&LIFECYCLE)),
    field(13, "terminationMessagePath", Text),
    field(14, "imagePullPolicy", Text),
    kept(15, "securityContext", Nested(&SECURITY_CONTEXT)),
    field(16, "stdin", Bool),
    field(17, "stdinOnce", Bool),
    field(18, "tty", Bool),
    list(19, "envFrom", Nested(&ENV_FROM_SOURCE)),
    field(20, "terminationMessagePolicy", Text),
    list(21, "volumeDevices", Nested(&VOLUME_DEVICE)),
    kept(22, "startupProbe", Nested(&PROBE)),
    list(23, "resizePolicy", Nested(&CONTAINER_RESIZE_POLICY)),
    kept(24, "restartPolicy", Text),
    list(25, "restartPolicyRules", Nested(&CONTAINER_RESTART_RULE)),
]);

pub(crate) static CONTAINER_EXTENDED_RESOURCE_REQUEST: Message = Message(&[
    kept(1, "containerName", Text),
    kept(2, "resourceName", Text),
    kept(3, "requestName", Text),
]);

pub(crate) static CONTAINER_IMAGE: Message = Message(&[
    list(1, "names", Text),
    field(2, "sizeBytes", Int64),
]);

pub(crate) static CONTAINER_PORT: Message = Message(&[
    field(1, "name", Text),
    field(2, "hostPort", Int32),
    kept(3, "containerPort", Int32),
    field(4, "protocol", Text),
    field(5, "hostIP", Text),
]);

pub(crate) static CONTAINER_RESIZE_POLICY: Message = Message(&[
    kept(1, "resourceName", Text),
    kept(2, "restartPolicy", Text),
]);

pub(crate) static CONTAINER_RESTART_RULE: Message = Message(&[
    field(1, "action", Text),
    kept(2, "exitCodes", Nested(&CONTAINER_RESTART_RULE_ON_EXIT_CODES)),
]);

pub(crate) static CONTAINER_RESTART_RULE_ON_EXIT_CODES: Message = Message(&[
    field(1, "operator", Text),
    list(2, "values", Int32),
]);

pub(crate) static CONTAINER_STATE: Message = Message(&[
    kept(1, "waiting", Nested(&CONTAINER_STATE_WAITING)),
    kept(2, "running", Nested(&CONTAINER_STATE_RUNNING)),
    kept(3, "terminated", Nested(&CONTAINER_STATE_TERMINATED)),
]);

pub(crate) static CONTAINER_STATE_RUNNING: Message = Message(&[
    field(1, "startedAt", Time),
]);

pub(crate) static CONTAINER_STATE_TERMINATED: Message = Message(&[
    kept(1, "exitCode", Int32),
    field(2, "signal", Int32),
    field(3, "reason", Text),
    field(4, "message", Text),
    field(5, "startedAt", Time),
    field(6, "finishedAt", Time),
    field(7, "containerID", Text),
]);

pub(crate) static CONTAINER_STATE_WAITING: Message = Message(&[
    field(1, "reason", Text),
    field(2, "message", Text),
]);

pub(crate) static CONTAINER_STATUS: Message = Message(&[
    kept(1, "name", Text),
    field(2, "state", Nested(&CONTAINER_STATE)),
    field(3, "lastState", Nested(&CONTAINER_STATE)),
    kept(4, "ready", Bool),
    kept(5, "restartCount", Int32),
    kept(6, "image", Text),
    kept(7, "imageID", Text),
    field(8, "containerID", Text),
    kept(9, "started", Bool),
    map(10, "allocatedResources", Quantity),
    kept(11, "resources", Nested(&RESOURCE_REQUIREMENTS)),
    list(12, "volumeMounts", Nested(&VOLUME_MOUNT_STATUS)),
    kept(13, "user", Nested(&CONTAINER_USER)),
    list(14, "allocatedResourcesStatus", Nested(&RESOURCE_STATUS)),
    kept(15, "stopSignal", Text),
]);

pub(crate) static CONTAINER_USER: Message = Message(&[
    kept(1, "linux", Nested(&LINUX_CONTAINER_USER)),
]);

pub(crate) static DAEMON_ENDPOINT: Message = Message(&[
    kept(1, "Port", Int32),
]);

pub(crate) static DOWNWARD_API_PROJECTION: Message = Message(&[
    list(1, "items", Nested(&DOWNWARD_API_VOLUME_FILE)),
]);

pub(crate) static DOWNWARD_API_VOLUME_FILE: Message = Message(&[
    kept(1, "path", Text),
    kept(2, "fieldRef", Nested(&OBJECT_FIELD_SELECTOR)),
    kept(3, "resourceFieldRef", Nested(&RESOURCE_FIELD_SELECTOR)),
    kept(4, "mode", Int32),
]);

pub(crate) static DOWNWARD_API_VOLUME_SOURCE: Message = Message(&[
    list(1, "items", Nested(&DOWNWARD_API_VOLUME_FILE)),
    kept(2, "defaultMode", Int32),
]);

pub(crate) static EMPTY_DIR_VOLUME_SOURCE: Message = Message(&[
    field(1, "medium", Text),
    field(2, "sizeLimit", Quantity),
]);

pub(crate) static ENDPOINT_ADDRESS: Message = Message(&[
    kept(1, "ip", Text),
    kept(2, "targetRef", Nested(&OBJECT_REFERENCE)),
    field(3, "hostname", Text),
    kept(4, "nodeName", Text),
]);

pub(crate) static ENDPOINT_PORT: Message = Message(&[
    field(1, "name", Text),
    kept(2, "port", Int32),
    field(3, "protocol", Text),
    kept(4, "appProtocol", Text),
]);

pub(crate) static ENDPOINT_SUBSET: Message = Message(&[
    list(1, "addresses", Nested(&ENDPOINT_ADDRESS)),
    list(2, "notReadyAddresses", Nested(&ENDPOINT_ADDRESS)),
    list(3, "ports", Nested(&ENDPOINT_PORT)),
]);

pub(crate) static ENDPOINTS: Message = Message(&[
    field(1, "metadata", Nested(&super::meta_v1::OBJECT_META)),
    list(2, "subsets", Nested(&ENDPOINT_SUBSET)),
]);

pub(crate) static ENV_FROM_SOURCE: Message = Message(&[
    field(1, "prefix", Text),
    kept(2, "configMapRef", Nested(&CONFIG_MAP_ENV_SOURCE)),
    kept(3, "secretRef", Nested(&SECRET_ENV_SOURCE)),
]);

pub(crate) static ENV_VAR: Message = Message(&[
    kept(1, "name", Text),
    field(2, "value", Text),
    kept(3, "valueFrom", Nested(&ENV_VAR_SOURCE)),
]);

pub(crate) static ENV_VAR_SOURCE: Message = Message(&[
    kept(1, "fieldRef", Nested(&OBJECT_FIELD_SELECTOR)),
    kept(2, "resourceFieldRef", Nested(&RESOURCE_FIELD_SELECTOR)),
    kept(3, "configMapKeyRef", Nested(&CONFIG_MAP_KEY_SELECTOR)),
    kept(4, "secretKeyRef", Nested(&SECRET_KEY_SELECTOR)),
    kept(5, "fileKeyRef", Nested(&FILE_KEY_SELECTOR)),
]);

pub(crate) static EPHEMERAL_CONTAINER: Message = Message(&[
    inline(1, &EPHEMERAL_CONTAINER_COMMON),
    field(2, "targetContainerName", Text),
]);

pub(crate) static EPHEMERAL_CONTAINER_COMMON: Message = Message(&[
    kept(1, "name", Text),
    field(2, "image", Text),
    list(3, "command", Text),
    list(4, "args", Text),
    field(5, "workingDir", Text),
    list(6, "ports", Nested(&CONTAINER_PORT)),
    list(7, "env", Nested(&ENV_VAR)),
    field(8, "resources", Nested(&RESOURCE_REQUIREMENTS)),
    list(9, "volumeMounts", Nested(&VOLUME_MOUNT)),
    kept(10, "livenessProbe", Nested(&PROBE)),
    kept(11, "readinessProbe", Nested(&PROBE)),
    kept(12, "lifecycle", Nested(&LIFECYCLE)),
    field(13, "terminationMessagePath", Text),
    field(14, "imagePullPolicy", Text),
    kept(15, "securityContext", Nested(&SECURITY_CONTEXT)),
    field(16, "stdin", Bool),
    field(17, "stdinOnce", Bool),
    field(18, "tty", Bool),
    list(19, "envFrom", Nested(&ENV_FROM_SOURCE)),
    field(20, "terminationMessagePolicy", Text),
    list(21, "volumeDevices", Nested(&VOLUME_DEVICE)),
    kept(22, "startupProbe", Nested(&PROBE)),
    list(23, "resizePolicy", Nested(&CONTAINER_RESIZE_POLICY)),
    kept(24, "restartPolicy", Text),
    list(25, "restartPolicyRules", Nested(&CONTAINER_RESTART_RULE)),
]);

pub(crate) static EPHEMERAL_VOLUME_SOURCE: Message = Message(&[
    kept(1, "volumeClaimTemplate", Nested(&PERSISTENT_VOLUME_CLAIM_TEMPLATE)),
]);

pub(crate) static EVENT: Message = Message(&[
    field(1, "metadata", Nested(&super::meta_v1::OBJECT_META)),
    field(2, "involvedObject", Nested(&OBJECT_REFERENCE)),
    field(3, "reason", Text),
    field(4, "message", Text),
    field(5, "source", Nested(&EVENT_SOURCE)),
    field(6, "firstTimestamp", Time),
    field(7, "lastTimestamp", Time),
    field(8, "count", Int32),
    field(9, "type", Text),
    field(10, "eventTime", MicroTime),
    kept(11, "series", Nested(&EVENT_SERIES)),
    field(12, "action", Text),
    kept(13, "related", Nested(&OBJECT_REFERENCE)),
    kept(14, "reportingComponent", Text),
    kept(15, "reportingInstance", Text),
]);

pub(crate) static EVENT_SERIES: Message = Message(&[
    field(1, "count", Int32),
    field(2, "lastObservedTime", MicroTime),
]);

pub(crate) static EVENT_SOURCE: Message = Message(&[
    field(1, "component", Text),
    field(2, "host", Text),
]);

pub(crate) static EXEC_ACTION: Message = Message(&[
    list(1, "command", Text),
]);

pub(crate) static FC_VOLUME_SOURCE: Message = Message(&[
    list(1, "targetWWNs", Text),
    kept(2, "lun", Int32),
    field(3, "fsType", Text),
    field(4, "readOnly", Bool),
    list(5, "wwids", Text),
]);

pub(crate) static FILE_KEY_SELECTOR: Message = Message(&[
    kept(1, "volumeName", Text),
    kept(2, "path", Text),
    kept(3, "key", Text),
    kept(4, "optional", Bool),
]);

pub(crate) static FLEX_VOLUME_SOURCE: Message = Message(&[
    kept(1, "driver", Text),
    field(2, "fsType", Text),
    kept(3, "secretRef", Nested(&LOCAL_OBJECT_REFERENCE)),
    field(4, "readOnly", Bool),
    map(5, "options", Text),
]);

pub(crate) static FLOCKER_VOLUME_SOURCE: Message = Message(&[
    field(1, "datasetName", Text),
    field(2, "datasetUUID", Text),
]);

pub(crate) static GCE_PERSISTENT_DISK_VOLUME_SOURCE: Message = Message(&[
    kept(1, "pdName", Text),
    field(2, "fsType", Text),
    field(3, "partition", Int32),
    field(4, "readOnly", Bool),
]);

pub(crate) static GIT_REPO_VOLUME_SOURCE: Message = Message(&[
    kept(1, "repository", Text),
    field(2, "revision", Text),
    field(3, "directory", Text),
]);

pub(crate) static GLUSTERFS_VOLUME_SOURCE: Message = Message(&[
    kept(1, "endpoints", Text),
    kept(2, "path", Text),
    field(3, "readOnly", Bool),
]);

pub(crate) static GRPC_ACTION: Message = Message(&[
    kept(1, "port", Int32),
    kept(2, "service", Text),
]);

pub(crate) static HOST_ALIAS: Message = Message(&[
    kept(1, "ip", Text),
    list(2, "hostnames", Text),
]);

pub(crate) static HOST_IP: Message = Message(&[
    kept(1, "ip", Text),
]);

pub(crate) static HOST_PATH_VOLUME_SOURCE: Message = Message(&[
    kept(1, "path", Text),
    kept(2, "type", Text),
]);

pub(crate) static HTTP_GET_ACTION: Message = Message(&[
    field(1, "path", Text),
    field(2, "port", IntOrString),
    field(3, "host", Text),
    field(4, "scheme", Text),
    list(5, "httpHeaders", Nested(&HTTP_HEADER)),
]);

pub(crate) static HTTP_HEADER: Message = Message(&[
    kept(1, "name", Text),
    kept(2, "value", Text),
]);

pub(crate) static IMAGE_VOLUME_SOURCE: Message = Message(&[
    field(1, "reference", Text),
    field(2, "pullPolicy", Text),
]);

pub(crate) static ISCSI_VOLUME_SOURCE: Message = Message(&[
    kept(1, "targetPortal", Text),
    kept(2, "iqn", Text),
    kept(3, "lun", Int32),
    field(4, "iscsiInterface", Text),
    field(5, "fsType", Text),
    field(6, "readOnly", Bool),
    list(7, "portals", Text),
    field(8, "chapAuthDiscovery", Bool),
    kept(10, "secretRef", Nested(&LOCAL_OBJECT_REFERENCE)),
    field(11, "chapAuthSession", Bool),
    kept(12, "initiatorName", Text),
]);

pub(crate) static KEY_TO_PATH: Message = Message(&[
    kept(1, "key", Text),
    kept(2, "path", Text),
    kept(3, "mode", Int32),
]);

pub(crate) static LIFECYCLE: Message = Message(&[
    kept(1, "postStart", Nested(&LIFECYCLE_HANDLER)),
    kept(2, "preStop", Nested(&LIFECYCLE_HANDLER)),
    kept(3, "stopSignal", Text),
]);

pub(crate) static LIFECYCLE_HANDLER: Message = Message(&[
    kept(1, "exec", Nested(&EXEC_ACTION)),
    kept(2, "httpGet", Nested(&HTTP_GET_ACTION)),
    kept(3, "tcpSocket", Nested(&TCP_SOCKET_ACTION)),
    kept(4, "sleep", Nested(&SLEEP_ACTION)),
]);

pub(crate) static LINUX_CONTAINER_USER: Message = Message(&[
    kept(1, "uid", Int64),
    kept(2, "gid", Int64),
    list(3, "supplementalGroups", Int64),
]);

pub(crate) static LOAD_BALANCER_INGRESS: Message = Message(&[
    field(1, "ip", Text),
    field(2, "hostname", Text),
    kept(3, "ipMode", Text),
    list(4, "ports", Nested(&PORT_STATUS)),
]);

pub(crate) static LOAD_BALANCER_STATUS: Message = Message(&[
    list(1, "ingress", Nested(&LOAD_BALANCER_INGRESS)),
]);

pub(crate) static LOCAL_OBJECT_REFERENCE: Message = Message(&[
    field(1, "name", Text),
]);

pub(crate) static NAMESPACE: Message = Message(&[
    field(1, "metadata", Nested(&super::meta_v1::OBJECT_META)),
    field(2, "spec", Nested(&NAMESPACE_SPEC)),
    field(3, "status", Nested(&NAMESPACE_STATUS)),
]);

pub(crate) static NAMESPACE_CONDITION: Message = Message(&[
    kept(1, "type", Text),
    kept(2, "status", Text),
    field(4, "lastTransitionTime", Time),
    field(5, "reason", Text),
    field(6, "message", Text),
]);

pub(crate) static NAMESPACE_SPEC: Message = Message(&[
    list(1, "finalizers", Text),
]);

pub(crate) static NAMESPACE_STATUS: Message = Message(&[
    field(1, "phase", Text),
    list(2, "conditions", Nested(&NAMESPACE_CONDITION)),
]);

pub(crate) static NFS_VOLUME_SOURCE: Message = Message(&[
    kept(1, "server", Text),
    kept(2, "path", Text),
    field(3, "readOnly", Bool),
]);

pub(crate) static NODE: Message = Message(&[
    field(1, "metadata", Nested(&super::meta_v1::OBJECT_META)),
    field(2, "spec", Nested(&NODE_SPEC)),
    field(3, "status", Nested(&NODE_STATUS)),
]);

pub(crate) static NODE_ADDRESS: Message = Message(&[
    kept(1, "type", Text),
    kept(2, "address", Text),
]);

pub(crate) static NODE_AFFINITY: Message = Message(&[
    kept(1, "requiredDuringSchedulingIgnoredDuringExecution", Nested(&NODE_SELECTOR)),
    list(2, "preferredDuringSchedulingIgnoredDuringExecution", Nested(&PREFERRED_SCHEDULING_TERM)),
]);

pub(crate) static NODE_CONDITION: Message = Message(&[
    kept(1, "type", Text),
    kept(2, "status", Text),
    field(3, "lastHeartbeatTime", Time),
    field(4, "lastTransitionTime", Time),
    field(5, "reason", Text),
    field(6, "message", Text),
]);

pub(crate) static NODE_CONFIG_SOURCE: Message = Message(&[
    kept(2, "configMap", Nested(&CONFIG_MAP_NODE_CONFIG_SOURCE)),
]);

pub(crate) static NODE_CONFIG_STATUS: Message = Message(&[
    kept(1, "assigned", Nested(&NODE_CONFIG_SOURCE)),
    kept(2, "active", Nested(&NODE_CONFIG_SOURCE)),
    kept(3, "lastKnownGood", Nested(&NODE_CONFIG_SOURCE)),
    field(4, "error", Text),
]);

pub(crate) static NODE_DAEMON_ENDPOINTS: Message = Message(&[
    field(1, "kubeletEndpoint", Nested(&DAEMON_ENDPOINT)),
]);

pub(crate) static NODE_FEATURES: Message = Message(&[
    kept(1, "supplementalGroupsPolicy", Bool),
]);

pub(crate) static NODE_RUNTIME_HANDLER: Message = Message(&[
    kept(1, "name", Text),
    kept(2, "features", Nested(&NODE_RUNTIME_HANDLER_FEATURES)),
]);

pub(crate) static NODE_RUNTIME_HANDLER_FEATURES: Message = Message(&[
    kept(1, "recursiveReadOnlyMounts", Bool),
    kept(2, "userNamespaces", Bool),
]);

pub(crate) static NODE_SELECTOR: Message = Message(&[
    list(1, "nodeSelectorTerms", Nested(&NODE_SELECTOR_TERM)),
]);

pub(crate) static NODE_SELECTOR_REQUIREMENT: Message = Message(&[
    kept(1, "key", Text),
    kept(2, "operator", Text),
    list(3, "values", Text),
]);

pub(crate) static NODE_SELECTOR_TERM: Message = Message(&[
    list(1, "matchExpressions", Nested(&NODE_SELECTOR_REQUIREMENT)),
    list(2, "matchFields", Nested(&NODE_SELECTOR_REQUIREMENT)),
]);

pub(crate) static NODE_SPEC: Message = Message(&[
    field(1, "podCIDR", Text),
    field(2, "externalID", Text),
    field(3, "providerID", Text),
    field(4, "unschedulable", Bool),
    list(5, "taints", Nested(&TAINT)),
    kept(6, "configSource", Nested(&NODE_CONFIG_SOURCE)),
    list(7, "podCIDRs", Text),
]);

pub(crate) static NODE_STATUS: Message = Message(&[
    map(1, "capacity", Quantity),
    map(2, "allocatable", Quantity),
    field(3, "phase", Text),
    list(4, "conditions", Nested(&NODE_CONDITION)),
    list(5, "addresses", Nested(&NODE_ADDRESS)),
    field(6, "daemonEndpoints", Nested(&NODE_DAEMON_ENDPOINTS)),
    field(7, "nodeInfo", Nested(&NODE_SYSTEM_INFO)),
    list(8, "images", Nested(&CONTAINER_IMAGE)),
    list(9, "volumesInUse", Text),
    list(10, "volumesAttached", Nested(&ATTACHED_VOLUME)),
    kept(11, "config", Nested(&NODE_CONFIG_STATUS)),
    list(12, "runtimeHandlers", Nested(&NODE_RUNTIME_HANDLER)),
    kept(13, "features", Nested(&NODE_FEATURES)),
    list(14, "declaredFeatures", Text),
]);

pub(crate) static NODE_SWAP_STATUS: Message = Message(&[
    kept(1, "capacity", Int64),
]);

pub(crate) static NODE_SYSTEM_INFO: Message = Message(&[
    kept(1, "machineID", Text),
    kept(2, "systemUUID", Text),
    kept(3, "bootID", Text),
    kept(4, "kernelVersion", Text),
    kept(5, "osImage", Text),
    kept(6, "containerRuntimeVersion", Text),
    kept(7, "kubeletVersion", Text),
    kept(8, "kubeProxyVersion", Text),
    kept(9, "operatingSystem", Text),
    kept(10, "architecture", Text),
    kept(11, "swap", Nested(&NODE_SWAP_STATUS)),
]);

pub(crate) static OBJECT_FIELD_SELECTOR: Message = Message(&[
    field(1, "apiVersion", Text),
    kept(2, "fieldPath", Text),
]);

pub(crate) static OBJECT_REFERENCE: Message = Message(&[
    field(1, "kind", Text),
    field(2, "namespace", Text),
    field(3, "name", Text),
    field(4, "uid", Text),
    field(5, "apiVersion", Text),
    field(6, "resourceVersion", Text),
    field(7, "fieldPath", Text),
]);

pub(crate) static PERSISTENT_VOLUME_CLAIM_SPEC: Message = Message(&[
    list(1, "accessModes", Text),
    field(2, "resources", Nested(&VOLUME_RESOURCE_REQUIREMENTS)),
    field(3, "volumeName", Text),
    kept(4, "selector", Nested(&super::meta_v1::LABEL_SELECTOR)),
    kept(5, "storageClassName", Text),
    kept(6, "volumeMode", Text),
    kept(7, "dataSource", Nested(&TYPED_LOCAL_OBJECT_REFERENCE)),
    kept(8, "dataSourceRef", Nested(&TYPED_OBJECT_REFERENCE)),
    kept(9, "volumeAttributesClassName", Text),
]);

pub(crate) static PERSISTENT_VOLUME_CLAIM_TEMPLATE: Message = Message(&[
    field(1, "metadata", Nested(&super::meta_v1::OBJECT_META)),
    field(2, "spec", Nested(&PERSISTENT_VOLUME_CLAIM_SPEC)),
]);

pub(crate) static PERSISTENT_VOLUME_CLAIM_VOLUME_SOURCE: Message = Message(&[
    kept(1, "claimName", Text),
    field(2, "readOnly", Bool),
]);

pub(crate) static PHOTON_PERSISTENT_DISK_VOLUME_SOURCE: Message = Message(&[
    kept(1, "pdID", Text),
    field(2, "fsType", Text),
]);

pub(crate) static POD: Message = Message(&[
    field(1, "metadata", Nested(&super::meta_v1::OBJECT_META)),
    field(2, "spec", Nested(&POD_SPEC)),
    field(3, "status", Nested(&POD_STATUS)),
]);

pub(crate) static POD_AFFINITY: Message = Message(&[
    list(1, "requiredDuringSchedulingIgnoredDuringExecution", Nested(&POD_AFFINITY_TERM)),
    list(2, "preferredDuringSchedulingIgnoredDuringExecution", Nested(&WEIGHTED_POD_AFFINITY_TERM)),
]);

pub(crate) static POD_AFFINITY_TERM: Message = Message(&[
    kept(1, "labelSelector", Nested(&super::meta_v1::LABEL_SELECTOR)),
    list(2, "namespaces", Text),
    kept(3, "topologyKey", Text),
    kept(4, "namespaceSelector", Nested(&super::meta_v1::LABEL_SELECTOR)),
    list(5, "matchLabelKeys", Text),
    list(6, "mismatchLabelKeys", Text),
]);

pub(crate) static POD_ANTI_AFFINITY: Message = Message(&[
    list(1, "requiredDuringSchedulingIgnoredDuringExecution", Nested(&POD_AFFINITY_TERM)),
    list(2, "preferredDuringSchedulingIgnoredDuringExecution", Nested(&WEIGHTED_POD_AFFINITY_TERM)),
]);

pub(crate) static POD_CERTIFICATE_PROJECTION: Message = Message(&[
    field(1, "signerName", Text),
    field(2, "keyType", Text),
    kept(3, "maxExpirationSeconds", Int32),
    field(4, "credentialBundlePath", Text),
    field(5, "keyPath", Text),
    field(6, "certificateChainPath", Text),
    map(7, "userAnnotations", Text),
]);

pub(crate) static POD_CONDITION: Message = Message(&[
    kept(1, "type", Text),
    kept(2, "status", Text),
    field(3, "lastProbeTime", Time),
    field(4, "lastTransitionTime", Time),
    field(5, "reason", Text),
    field(6, "message", Text),
    field(7, "observedGeneration", Int64),
]);

pub(crate) static POD_DNS_CONFIG: Message = Message(&[
    list(1, "nameservers", Text),
    list(2, "searches", Text),
    list(3, "options", Nested(&POD_DNS_CONFIG_OPTION)),
]);

pub(crate) static POD_DNS_CONFIG_OPTION: Message = Message(&[
    field(1, "name", Text),
    kept(2, "value", Text),
]);

pub(crate) static POD_EXEC_OPTIONS: Message = Message(&[
    field(1, "stdin", Bool),
    field(2, "stdout", Bool),
    field(3, "stderr", Bool),
    field(4, "tty", Bool),
    field(5, "container", Text),
    list(6, "command", Text),
    list(7, "env", Nested(&ENV_VAR)),
]);

pub(crate) static POD_EXTENDED_RESOURCE_CLAIM_STATUS: Message = Message(&[
    list(1, "requestMappings", Nested(&CONTAINER_EXTENDED_RESOURCE_REQUEST)),
    kept(2, "resourceClaimName", Text),
]);

pub(crate) static POD_IP: Message = Message(&[
    kept(1, "ip", Text),
]);

pub(crate) static POD_OS: Message = Message(&[
    kept(1, "name", Text),
]);

pub(crate) static POD_READINESS_GATE: Message = Message(&[
    kept(1, "conditionType", Text),
]);

pub(crate) static POD_RESOURCE_CLAIM: Message = Message(&[
    kept(1, "name", Text),
    kept(3, "resourceClaimName", Text),
    kept(4, "resourceClaimTemplateName", Text),
]);

pub(crate) static POD_RESOURCE_CLAIM_STATUS: Message = Message(&[
    kept(1, "name", Text),
    kept(2, "resourceClaimName", Text),
]);

pub(crate) static POD_SCHEDULING_GATE: Message = Message(&[
    kept(1, "name", Text),
]);

pub(crate) static POD_SECURITY_CONTEXT: Message = Message(&[
    kept(1, "seLinuxOptions", Nested(&SE_LINUX_OPTIONS)),
    kept(2, "runAsUser", Int64),
    kept(3, "runAsNonRoot", Bool),
    list(4, "supplementalGroups", Int64),
    kept(5, "fsGroup", Int64),
    kept(6, "runAsGroup", Int64),
    list(7, "sysctls", Nested(&SYSCTL)),
    kept(8, "windowsOptions", Nested(&WINDOWS_SECURITY_CONTEXT_OPTIONS)),
    kept(9, "fsGroupChangePolicy", Text),
    kept(10, "seccompProfile", Nested(&SECCOMP_PROFILE)),
    kept(11, "appArmorProfile", Nested(&APP_ARMOR_PROFILE)),
    kept(12, "supplementalGroupsPolicy", Text),
    kept(13, "seLinuxChangePolicy", Text),
]);

pub(crate) static POD_SPEC: Message = Message(&[
    list(1, "volumes", Nested(&VOLUME)),
    list(2, "containers", Nested(&CONTAINER)),
    field(3, "restartPolicy", Text),
    kept(4, "terminationGracePeriodSeconds", Int64),
    kept(5, "activeDeadlineSeconds", Int64),
    field(6, "dnsPolicy", Text),
    map(7, "nodeSelector", Text),
    field(8, "serviceAccountName", Text),
    field(9, "serviceAccount", Text),
    field(10, "nodeName", Text),
    field(11, "hostNetwork", Bool),
    field(12, "hostPID", Bool),
    field(13, "hostIPC", Bool),
    kept(14, "securityContext", Nested(&POD_SECURITY_CONTEXT)),
    list(15, "imagePullSecrets", Nested(&LOCAL_OBJECT_REFERENCE)),
    field(16, "hostname", Text),
    field(17, "subdomain", Text),
    kept(18, "affinity", Nested(&AFFINITY)),
    field(19, "schedulerName", Text),
    list(20, "initContainers", Nested(&CONTAINER)),
    kept(21, "automountServiceAccountToken", Bool),
    list(22, "tolerations", Nested(&TOLERATION)),
    list(23, "hostAliases", Nested(&HOST_ALIAS)),
    field(24, "priorityClassName", Text),
    kept(25, "priority", Int32),
    kept(26, "dnsConfig", Nested(&POD_DNS_CONFIG)),
    kept(27, "shareProcessNamespace", Bool),
    list(28, "readinessGates", Nested(&POD_READINESS_GATE)),
    kept(29, "runtimeClassName", Text),
    kept(30, "enableServiceLinks", Bool),
    kept(31, "preemptionPolicy", Text),
    map(32, "overhead", Quantity),
    list(33, "topologySpreadConstraints", Nested(&TOPOLOGY_SPREAD_CONSTRAINT)),
    list(34, "ephemeralContainers", Nested(&EPHEMERAL_CONTAINER)),
    kept(35, "setHostnameAsFQDN", Bool),
    kept(36, "os", Nested(&POD_OS)),
    kept(37, "hostUsers", Bool),
    list(38, "schedulingGates", Nested(&POD_SCHEDULING_GATE)),
    list(39, "resourceClaims", Nested(&POD_RESOURCE_CLAIM)),
    kept(40, "resources", Nested(&RESOURCE_REQUIREMENTS)),
    kept(41, "hostnameOverride", Text),
]);

pub(crate) static POD_STATUS: Message = Message(&[
    field(1, "phase", Text),
    list(2, "conditions", Nested(&POD_CONDITION)),
    field(3, "message", Text),
    field(4, "reason", Text),
    field(5, "hostIP", Text),
    field(6, "podIP", Text),
    field(7, "startTime", Time),
    list(8, "containerStatuses", Nested(&CONTAINER_STATUS)),
    field(9, "qosClass", Text),
    list(10, "initContainerStatuses", Nested(&CONTAINER_STATUS)),
    field(11, "nominatedNodeName", Text),
    list(12, "podIPs", Nested(&POD_IP)),
    list(13, "ephemeralContainerStatuses", Nested(&CONTAINER_STATUS)),
    field(14, "resize", Text),
    list(15, "resourceClaimStatuses", Nested(&POD_RESOURCE_CLAIM_STATUS)),
    list(16, "hostIPs", Nested(&HOST_IP)),
    field(17, "observedGeneration", Int64),
    kept(18, "extendedResourceClaimStatus", Nested(&POD_EXTENDED_RESOURCE_CLAIM_STATUS)),
    map(19, "allocatedResources", Quantity),
    kept(20, "resources", Nested(&RESOURCE_REQUIREMENTS)),
]);

pub(crate) static POD_TEMPLATE: Message = Message(&[
    field(1, "metadata", Nested(&super::meta_v1::OBJECT_META)),
    field(2, "template", Nested(&POD_TEMPLATE_SPEC)),
]);

pub(crate) static POD_TEMPLATE_SPEC: Message = Message(&[
    field(1, "metadata", Nested(&super::meta_v1::OBJECT_META)),
    field(2, "spec", Nested(&POD_SPEC)),
]);

pub(crate) static PORT_STATUS: Message = Message(&[
    kept(1, "port", Int32),
    kept(2, "protocol", Text),
    kept(3, "error", Text),
]);

pub(crate) static PORTWORX_VOLUME_SOURCE: Message = Message(&[
    kept(1, "volumeID", Text),
    field(2, "fsType", Text),
    field(3, "readOnly", Bool),
]);

pub(crate) static PREFERRED_SCHEDULING_TERM: Message = Message(&[
    kept(1, "weight", Int32),
    field(2, "preference", Nested(&NODE_SELECTOR_TERM)),
]);

pub(crate) static PROBE: Message = Message(&[
    inline(1, &PROBE_HANDLER),
    field(2, "initialDelaySeconds", Int32),
    field(3, "timeoutSeconds", Int32),
    field(4, "periodSeconds", Int32),
    field(5, "successThreshold", Int32),
    field(6, "failureThreshold", Int32),
    kept(7, "terminationGracePeriodSeconds", Int64),
]);

pub(crate) static PROBE_HANDLER: Message = Message(&[
    kept(1, "exec", Nested(&EXEC_ACTION)),
    kept(2, "httpGet", Nested(&HTTP_GET_ACTION)),
    kept(3, "tcpSocket", Nested(&TCP_SOCKET_ACTION)),
    kept(4, "grpc", Nested(&GRPC_ACTION)),
]);

pub(crate) static PROJECTED_VOLUME_SOURCE: Message = Message(&[
    list(1, "sources", Nested(&VOLUME_PROJECTION)),
    kept(2, "defaultMode", Int32),
]);

pub(crate) static QUOBYTE_VOLUME_SOURCE: Message = Message(&[
    kept(1, "registry", Text),
    kept(2, "volume", Text),
    field(3, "readOnly", Bool),
    field(4, "user", Text),
    field(5, "group", Text),
    field(6, "tenant", Text),
]);

pub(crate) static RBD_VOLUME_SOURCE: Message = Message(&[
    list(1, "monitors", Text),
    kept(2, "image", Text),
    field(3, "fsType", Text),
    field(4, "pool", Text),
    field(5, "user", Text),
    field(6, "keyring", Text),
    kept(7, "secretRef", Nested(&LOCAL_OBJECT_REFERENCE)),
    field(8, "readOnly", Bool),
]);

pub(crate) static RESOURCE_CLAIM: Message = Message(&[
    kept(1, "name", Text),
    field(2, "request", Text),
]);

pub(crate) static RESOURCE_FIELD_SELECTOR: Message = Message(&[
    field(1, "containerName", Text),
    kept(2, "resource", Text),
    field(3, "divisor", Quantity),
]);

pub(crate) static RESOURCE_HEALTH: Message = Message(&[
    kept(1, "resourceID", Text),
    field(2, "health", Text),
    kept(6, "message", Text),
]);

pub(crate) static RESOURCE_REQUIREMENTS: Message = Message(&[
    map(1, "limits", Quantity),
    map(2, "requests", Quantity),
    list(3, "claims", Nested(&RESOURCE_CLAIM)),
]);

pub(crate) static RESOURCE_STATUS: Message = Message(&[
    kept(1, "name", Text),
    list(2, "resources", Nested(&RESOURCE_HEALTH)),
]);

pub(crate) static SCALE_IO_VOLUME_SOURCE: Message = Message(&[
    kept(1, "gateway", Text),
    kept(2, "system", Text),
    kept(3, "secretRef", Nested(&LOCAL_OBJECT_REFERENCE)),
    field(4, "sslEnabled", Bool),
    field(5, "protectionDomain", Text),
    field(6, "storagePool", Text),
    field(7, "storageMode", Text),
    field(8, "volumeName", Text),
    field(9, "fsType", Text),
    field(10, "readOnly", Bool),
]);

pub(crate) static SE_LINUX_OPTIONS: Message = Message(&[
    field(1, "user", Text),
    field(2, "role", Text),
    field(3, "type", Text),
    field(4, "level", Text),
]);

pub(crate) static SECCOMP_PROFILE: Message = Message(&[
    kept(1, "type", Text),
    kept(2, "localhostProfile", Text),
]);

pub(crate) static SECRET: Message = Message(&[
    field(1, "metadata", Nested(&super::meta_v1::OBJECT_META)),
    map(2, "data", Bytes),
    field(3, "type", Text),
    map(4, "stringData", Text),
    kept(5, "immutable", Bool),
]);

pub(crate) static SECRET_ENV_SOURCE: Message = Message(&[
    inline(1, &LOCAL_OBJECT_REFERENCE),
    kept(2, "optional", Bool),
]);

pub(crate) static SECRET_KEY_SELECTOR: Message = Message(&[
    inline(1, &LOCAL_OBJECT_REFERENCE),
    kept(2, "key", Text),
    kept(3, "optional", Bool),
]);

pub(crate) static SECRET_PROJECTION: Message = Message(&[
    inline(1, &LOCAL_OBJECT_REFERENCE),
    list(2, "items", Nested(&KEY_TO_PATH)),
    kept(4, "optional", Bool),
]);

pub(crate) static SECRET_VOLUME_SOURCE: Message = Message(&[
    field(1, "secretName", Text),
    list(2, "items", Nested(&KEY_TO_PATH)),
    kept(3, "defaultMode", Int32),
    kept(4, "optional", Bool),
]);

pub(crate) static SECURITY_CONTEXT: Message = Message(&[
    kept(1, "capabilities", Nested(&CAPABILITIES)),
    kept(2, "privileged", Bool),
    kept(3, "seLinuxOptions", Nested(&SE_LINUX_OPTIONS)),
    kept(4, "runAsUser", Int64),
    kept(5, "runAsNonRoot", Bool),
    kept(6, "readOnlyRootFilesystem", Bool),
    kept(7, "allowPrivilegeEscalation", Bool),
    kept(8, "runAsGroup", Int64),
    kept(9, "procMount", Text),
    kept(10, "windowsOptions", Nested(&WINDOWS_SECURITY_CONTEXT_OPTIONS)),
    kept(11, "seccompProfile", Nested(&SECCOMP_PROFILE)),
    kept(12, "appArmorProfile", Nested(&APP_ARMOR_PROFILE)),
]);

pub(crate) static SERVICE: Message = Message(&[
    field(1, "metadata", Nested(&super::meta_v1::OBJECT_META)),
    field(2, "spec", Nested(&SERVICE_SPEC)),
    field(3, "status", Nested(&SERVICE_STATUS)),
]);

pub(crate) static SERVICE_ACCOUNT: Message = Message(&[
    field(1, "metadata", Nested(&super::meta_v1::OBJECT_META)),
    list(2, "secrets", Nested(&OBJECT_REFERENCE)),
    list(3, "imagePullSecrets", Nested(&LOCAL_OBJECT_REFERENCE)),
    kept(4, "automountServiceAccountToken", Bool),
]);

pub(crate) static SERVICE_ACCOUNT_TOKEN_PROJECTION: Message = Message(&[
    field(1, "audience", Text),
    kept(2, "expirationSeconds", Int64),
    kept(3, "path", Text),
]);

pub(crate) static SERVICE_PORT: Message = Message(&[
    field(1, "name", Text),
    field(2, "protocol", Text),
    kept(3, "port", Int32),
    field(4, "targetPort", IntOrString),
    field(5, "nodePort", Int32),
    kept(6, "appProtocol", Text),
]);

pub(crate) static SERVICE_SPEC: Message = Message(&[
    list(1, "ports", Nested(&SERVICE_PORT)),
    map(2, "selector", Text),
    field(3, "clusterIP", Text),
    field(4, "type", Text),
    list(5, "externalIPs", Text),
    field(7, "sessionAffinity", Text),
    field(8, "loadBalancerIP", Text),
    list(9, "loadBalancerSourceRanges", Text),
    field(10, "externalName", Text),
    field(11, "externalTrafficPolicy", Text),
    field(12, "healthCheckNodePort", Int32),
    field(13, "publishNotReadyAddresses", Bool),
    kept(14, "sessionAffinityConfig", Nested(&SESSION_AFFINITY_CONFIG)),
    kept(17, "ipFamilyPolicy", Text),
    list(18, "clusterIPs", Text),
    list(19, "ipFamilies", Text),
    kept(20, "allocateLoadBalancerNodePorts", Bool),
    kept(21, "loadBalancerClass", Text),
    kept(22, "internalTrafficPolicy", Text),
    kept(23, "trafficDistribution", Text),
]);

pub(crate) static SERVICE_STATUS: Message = Message(&[
    field(1, "loadBalancer", Nested(&LOAD_BALANCER_STATUS)),
    list(2, "conditions", Nested(&super::meta_v1::CONDITION)),
]);

pub(crate) static SESSION_AFFINITY_CONFIG: Message = Message(&[
    kept(1, "clientIP", Nested(&CLIENT_IP_CONFIG)),
]);

pub(crate) static SLEEP_ACTION: Message = Message(&[
    kept(1, "seconds", Int64),
]);

pub(crate) static STORAGE_OS_VOLUME_SOURCE: Message = Message(&[
    field(1, "volumeName", Text),
    field(2, "volumeNamespace", Text),
    field(3, "fsType", Text),
    field(4, "readOnly", Bool),
    kept(5, "secretRef", Nested(&LOCAL_OBJECT_REFERENCE)),
]);

pub(crate) static SYSCTL: Message = Message(&[
    kept(1, "name", Text),
    kept(2, "value", Text),
]);

pub(crate) static TAINT: Message = Message(&[
    kept(1, "key", Text),
    field(2, "value", Text),
    kept(3, "effect", Text),
    field(4, "timeAdded", Time),
]);

pub(crate) static TCP_SOCKET_ACTION: Message = Message(&[
    field(1, "port", IntOrString),
    field(2, "host", Text),
]);

pub(crate) static TOLERATION: Message = Message(&[
    field(1, "key", Text),
    field(2, "operator", Text),
    field(3, "value", Text),
    field(4, "effect", Text),
    kept(5, "tolerationSeconds", Int64),
]);

pub(crate) static TOPOLOGY_SPREAD_CONSTRAINT: Message = Message(&[
    kept(1, "maxSkew", Int32),
    kept(2, "topologyKey", Text),
    kept(3, "whenUnsatisfiable", Text),
    kept(4, "labelSelector", Nested(&super::meta_v1::LABEL_SELECTOR)),
    kept(5, "minDomains", Int32),
    kept(6, "nodeAffinityPolicy", Text),
    kept(7, "nodeTaintsPolicy", Text),
    list(8, "matchLabelKeys", Text),
]);

pub(crate) static TYPED_LOCAL_OBJECT_REFERENCE: Message = Message(&[
    kept(1, "apiGroup", Text),
    kept(2, "kind", Text),
    kept(3, "name", Text),
]);

pub(crate) static TYPED_OBJECT_REFERENCE: Message = Message(&[
    kept(1, "apiGroup", Text),
    kept(2, "kind", Text),
    kept(3, "name", Text),
    kept(4, "namespace", Text),
]);

pub(crate) static VOLUME: Message = Message(&[
    kept(1, "name", Text),
    inline(2, &VOLUME_SOURCE),
]);

pub(crate) static VOLUME_DEVICE: Message = Message(&[
    kept(1, "name", Text),
    kept(2, "devicePath", Text),
]);

pub(crate) static VOLUME_MOUNT: Message = Message(&[
    kept(1, "name", Text),
    field(2, "readOnly", Bool),
    kept(3, "mountPath", Text),
    field(4, "subPath", Text),
    kept(5, "mountPropagation", Text),
    field(6, "subPathExpr", Text),
    kept(7, "recursiveReadOnly", Text),
]);

pub(crate) static VOLUME_MOUNT_STATUS: Message = Message(&[
    kept(1, "name", Text),
    kept(2, "mountPath", Text),
    field(3, "readOnly", Bool),
    kept(4, "recursiveReadOnly", Text),
]);

pub(crate) static VOLUME_PROJECTION: Message = Message(&[
    kept(1, "secret", Nested(&SECRET_PROJECTION)),
    kept(2, "downwardAPI", Nested(&DOWNWARD_API_PROJECTION)),
    kept(3, "configMap", Nested(&CONFIG_MAP_PROJECTION)),
    kept(4, "serviceAccountToken", Nested(&SERVICE_ACCOUNT_TOKEN_PROJECTION)),
    kept(5, "clusterTrustBundle", Nested(&CLUSTER_TRUST_BUNDLE_PROJECTION)),
    kept(6, "podCertificate", Nested(&POD_CERTIFICATE_PROJECTION)),
]);

pub(crate) static VOLUME_RESOURCE_REQUIREMENTS: Message = Message(&[
    map(1, "limits", Quantity),
    map(2, "requests", Quantity),
]);

pub(crate) static VOLUME_SOURCE: Message = Message(&[
    kept(1, "hostPath", Nested(&HOST_PATH_VOLUME_SOURCE)),
    kept(2, "emptyDir", Nested(&EMPTY_DIR_VOLUME_SOURCE)),
    kept(3, "gcePersistentDisk", Nested(&GCE_PERSISTENT_DISK_VOLUME_SOURCE)),
    kept(4, "awsElasticBlockStore", Nested(&AWS_ELASTIC_BLOCK_STORE_VOLUME_SOURCE)),
    kept(5, "gitRepo", Nested(&GIT_REPO_VOLUME_SOURCE)),
    kept(6, "secret", Nested(&SECRET_VOLUME_SOURCE)),
    kept(7, "nfs", Nested(&NFS_VOLUME_SOURCE)),
    kept(8, "iscsi", Nested(&ISCSI_VOLUME_SOURCE)),
    kept(9, "glusterfs", Nested(&GLUSTERFS_VOLUME_SOURCE)),
    kept(10, "persistentVolumeClaim", Nested(&PERSISTENT_VOLUME_CLAIM_VOLUME_SOURCE)),
    kept(11, "rbd", Nested(&RBD_VOLUME_SOURCE)),
    kept(12, "flexVolume", Nested(&FLEX_VOLUME_SOURCE)),
    kept(13, "cinder", Nested(&CINDER_VOLUME_SOURCE)),
    kept(14, "cephfs", Nested(&CEPH_FS_VOLUME_SOURCE)),
    kept(15, "flocker", Nested(&FLOCKER_VOLUME_SOURCE)),
    kept(16, "downwardAPI", Nested(&DOWNWARD_API_VOLUME_SOURCE)),
    kept(17, "fc", Nested(&FC_VOLUME_SOURCE)),
    kept(18, "azureFile", Nested(&AZURE_FILE_VOLUME_SOURCE)),
    kept(19, "configMap", Nested(&CONFIG_MAP_VOLUME_SOURCE)),
    kept(20, "vsphereVolume", Nested(&VSPHERE_VIRTUAL_DISK_VOLUME_SOURCE)),
    kept(21, "quobyte", Nested(&QUOBYTE_VOLUME_SOURCE)),
    kept(22, "azureDisk", Nested(&AZURE_DISK_VOLUME_SOURCE)),
    kept(23, "photonPersistentDisk", Nested(&PHOTON_PERSISTENT_DISK_VOLUME_SOURCE)),
    kept(24, "portworxVolume", Nested(&PORTWORX_VOLUME_SOURCE)),
    kept(25, "scaleIO", Nested(&SCALE_IO_VOLUME_SOURCE)),
    kept(26, "projected", Nested(&PROJECTED_VOLUME_SOURCE)),
    kept(27, "storageos", Nested(&STORAGE_OS_VOLUME_SOURCE)),
    kept(28, "csi", Nested(&CSI_VOLUME_SOURCE)),
    kept(29, "ephemeral", Nested(&EPHEMERAL_VOLUME_SOURCE)),
    kept(30, "image", Nested(&IMAGE_VOLUME_SOURCE)),
]);

pub(crate) static VSPHERE_VIRTUAL_DISK_VOLUME_SOURCE: Message = Message(&[
    kept(1, "volumePath", Text),
    field(2, "fsType", Text),
    field(3, "storagePolicyName", Text),
    field(4, "storagePolicyID", Text),
]);

pub(crate) static WEIGHTED_POD_AFFINITY_TERM: Message = Message(&[
    kept(1, "weight", Int32),
    field(2, "podAffinityTerm", Nested(&POD_AFFINITY_TERM)),
]);

pub(crate) static WINDOWS_SECURITY_CONTEXT_OPTIONS: Message = Message(&[
    kept(1, "gmsaCredentialSpecName", Text),
    kept(2, "gmsaCredentialSpec", Text),
    kept(3, "runAsUserName", Text),
    kept(4, "hostProcess", Bool),
]);
