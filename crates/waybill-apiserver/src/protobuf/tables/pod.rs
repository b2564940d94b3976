//! Pods and what their specs hold besides containers and volumes.

use super::{
    affinity::{AFFINITY, TOLERATION, TOPOLOGY_SPREAD_CONSTRAINT},
    container::{CONTAINER, EPHEMERAL_CONTAINER, RESOURCE_REQUIREMENTS},
    meta::OBJECT_META,
    objects::LOCAL_OBJECT_REFERENCE,
    pod_status::POD_STATUS,
    security::POD_SECURITY_CONTEXT,
    volume::VOLUME,
};
use crate::protobuf::table::{
    Message,
    Type::{Bool, Int32, Int64, Message as Nested, Quantity, Text},
    field, kept, list, map,
};

pub(in crate::protobuf) static POD: Message = Message(&[
    field(1, "metadata", Nested(&OBJECT_META)),
    field(2, "spec", Nested(&POD_SPEC)),
    field(3, "status", Nested(&POD_STATUS)),
]);

static POD_SPEC: Message = Message(&[
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

static HOST_ALIAS: Message = Message(&[kept(1, "ip", Text), list(2, "hostnames", Text)]);

static POD_DNS_CONFIG: Message = Message(&[
    list(1, "nameservers", Text),
    list(2, "searches", Text),
    list(3, "options", Nested(&POD_DNS_CONFIG_OPTION)),
]);

static POD_DNS_CONFIG_OPTION: Message = Message(&[field(1, "name", Text), kept(2, "value", Text)]);

static POD_READINESS_GATE: Message = Message(&[kept(1, "conditionType", Text)]);

static POD_OS: Message = Message(&[kept(1, "name", Text)]);

static POD_SCHEDULING_GATE: Message = Message(&[kept(1, "name", Text)]);

static POD_RESOURCE_CLAIM: Message = Message(&[
    kept(1, "name", Text),
    kept(3, "resourceClaimName", Text),
    kept(4, "resourceClaimTemplateName", Text),
]);

pub(in crate::protobuf) static POD_TEMPLATE: Message = Message(&[
    field(1, "metadata", Nested(&OBJECT_META)),
    field(2, "template", Nested(&POD_TEMPLATE_SPEC)),
]);

static POD_TEMPLATE_SPEC: Message =
    Message(&[field(1, "metadata", Nested(&OBJECT_META)), field(2, "spec", Nested(&POD_SPEC))]);
