//! Containers.

use super::{objects::LOCAL_OBJECT_REFERENCE, security::SECURITY_CONTEXT};
use crate::protobuf::table::{
    Message,
    Type::{Bool, Int32, Int64, IntOrString, Message as Nested, Quantity, Text},
    field, inline, kept, list, map,
};

pub(super) static OBJECT_FIELD_SELECTOR: Message =
    Message(&[field(1, "apiVersion", Text), kept(2, "fieldPath", Text)]);

pub(super) static RESOURCE_FIELD_SELECTOR: Message = Message(&[
    field(1, "containerName", Text),
    kept(2, "resource", Text),
    field(3, "divisor", Quantity),
]);

pub(super) static CONTAINER: Message = Message(&[
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

static CONTAINER_PORT: Message = Message(&[
    field(1, "name", Text),
    field(2, "hostPort", Int32),
    kept(3, "containerPort", Int32),
    field(4, "protocol", Text),
    field(5, "hostIP", Text),
]);

static ENV_FROM_SOURCE: Message = Message(&[
    field(1, "prefix", Text),
    kept(2, "configMapRef", Nested(&CONFIG_MAP_ENV_SOURCE)),
    kept(3, "secretRef", Nested(&SECRET_ENV_SOURCE)),
]);

static CONFIG_MAP_ENV_SOURCE: Message =
    Message(&[inline(1, &LOCAL_OBJECT_REFERENCE), kept(2, "optional", Bool)]);

static SECRET_ENV_SOURCE: Message =
    Message(&[inline(1, &LOCAL_OBJECT_REFERENCE), kept(2, "optional", Bool)]);

pub(super) static ENV_VAR: Message = Message(&[
    kept(1, "name", Text),
    field(2, "value", Text),
    kept(3, "valueFrom", Nested(&ENV_VAR_SOURCE)),
]);

static ENV_VAR_SOURCE: Message = Message(&[
    kept(1, "fieldRef", Nested(&OBJECT_FIELD_SELECTOR)),
    kept(2, "resourceFieldRef", Nested(&RESOURCE_FIELD_SELECTOR)),
    kept(3, "configMapKeyRef", Nested(&CONFIG_MAP_KEY_SELECTOR)),
    kept(4, "secretKeyRef", Nested(&SECRET_KEY_SELECTOR)),
    kept(5, "fileKeyRef", Nested(&FILE_KEY_SELECTOR)),
]);

static CONFIG_MAP_KEY_SELECTOR: Message =
    Message(&[inline(1, &LOCAL_OBJECT_REFERENCE), kept(2, "key", Text), kept(3, "optional", Bool)]);

static SECRET_KEY_SELECTOR: Message =
    Message(&[inline(1, &LOCAL_OBJECT_REFERENCE), kept(2, "key", Text), kept(3, "optional", Bool)]);

pub(super) static RESOURCE_REQUIREMENTS: Message = Message(&[
    map(1, "limits", Quantity),
    map(2, "requests", Quantity),
    list(3, "claims", Nested(&RESOURCE_CLAIM)),
]);

static RESOURCE_CLAIM: Message = Message(&[kept(1, "name", Text), field(2, "request", Text)]);

static CONTAINER_RESIZE_POLICY: Message =
    Message(&[kept(1, "resourceName", Text), kept(2, "restartPolicy", Text)]);

static VOLUME_MOUNT: Message = Message(&[
    kept(1, "name", Text),
    field(2, "readOnly", Bool),
    kept(3, "mountPath", Text),
    field(4, "subPath", Text),
    kept(5, "mountPropagation", Text),
    field(6, "subPathExpr", Text),
    kept(7, "recursiveReadOnly", Text),
]);

static VOLUME_DEVICE: Message = Message(&[kept(1, "name", Text), kept(2, "devicePath", Text)]);

static PROBE: Message = Message(&[
    inline(1, &PROBE_HANDLER),
    field(2, "initialDelaySeconds", Int32),
    field(3, "timeoutSeconds", Int32),
    field(4, "periodSeconds", Int32),
    field(5, "successThreshold", Int32),
    field(6, "failureThreshold", Int32),
    kept(7, "terminationGracePeriodSeconds", Int64),
]);

static PROBE_HANDLER: Message = Message(&[
    kept(1, "exec", Nested(&EXEC_ACTION)),
    kept(2, "httpGet", Nested(&HTTP_GET_ACTION)),
    kept(3, "tcpSocket", Nested(&TCP_SOCKET_ACTION)),
    kept(4, "grpc", Nested(&GRPC_ACTION)),
]);

static EXEC_ACTION: Message = Message(&[list(1, "command", Text)]);

static HTTP_GET_ACTION: Message = Message(&[
    field(1, "path", Text),
    field(2, "port", IntOrString),
    field(3, "host", Text),
    field(4, "scheme", Text),
    list(5, "httpHeaders", Nested(&HTTP_HEADER)),
]);

static HTTP_HEADER: Message = Message(&[kept(1, "name", Text), kept(2, "value", Text)]);

static TCP_SOCKET_ACTION: Message =
    Message(&[field(1, "port", IntOrString), field(2, "host", Text)]);

static GRPC_ACTION: Message = Message(&[kept(1, "port", Int32), kept(2, "service", Text)]);

static LIFECYCLE: Message = Message(&[
    kept(1, "postStart", Nested(&LIFECYCLE_HANDLER)),
    kept(2, "preStop", Nested(&LIFECYCLE_HANDLER)),
    kept(3, "stopSignal", Text),
]);

static LIFECYCLE_HANDLER: Message = Message(&[
    kept(1, "exec", Nested(&EXEC_ACTION)),
    kept(2, "httpGet", Nested(&HTTP_GET_ACTION)),
    kept(3, "tcpSocket", Nested(&TCP_SOCKET_ACTION)),
    kept(4, "sleep", Nested(&SLEEP_ACTION)),
]);

static SLEEP_ACTION: Message = Message(&[kept(1, "seconds", Int64)]);

/// What `EphemeralContainerCommon` has, under the same numbers, is what a container has.
pub(super) static EPHEMERAL_CONTAINER: Message =
    Message(&[inline(1, &CONTAINER), field(2, "targetContainerName", Text)]);

static FILE_KEY_SELECTOR: Message = Message(&[
    kept(1, "volumeName", Text),
    kept(2, "path", Text),
    kept(3, "key", Text),
    kept(4, "optional", Bool),
]);

static CONTAINER_RESTART_RULE: Message = Message(&[
    field(1, "action", Text),
    kept(2, "exitCodes", Nested(&CONTAINER_RESTART_RULE_ON_EXIT_CODES)),
]);

static CONTAINER_RESTART_RULE_ON_EXIT_CODES: Message =
    Message(&[field(1, "operator", Text), list(2, "values", Int32)]);
