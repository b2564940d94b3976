//! Which lists of Kubernetes a strategic merge patch merges, and by what. Written by `cargo xtask gen` from
//! k8s-pb 0.9.0; do not edit.

pub(crate) mod admissionregistration_v1 {
    use crate::patch::schema::{Fields, PLAIN, Rule::{Keyed, Object}};

    pub(crate) const MUTATING_WEBHOOK: Fields = &[
        ("matchConditions", Keyed("name", PLAIN)),
    ];
    pub(crate) const MUTATING_WEBHOOK_CONFIGURATION: Fields = &[
        ("metadata", Object(super::meta_v1::OBJECT_META)),
        ("webhooks", Keyed("name", MUTATING_WEBHOOK)),
    ];
    pub(crate) const VALIDATING_ADMISSION_POLICY: Fields = &[
        ("metadata", Object(super::meta_v1::OBJECT_META)),
        ("spec", Object(VALIDATING_ADMISSION_POLICY_SPEC)),
    ];
    pub(crate) const VALIDATING_ADMISSION_POLICY_SPEC: Fields = &[
        ("matchConditions", Keyed("name", PLAIN)),
        ("variables", Keyed("name", PLAIN)),
    ];
    pub(crate) const VALIDATING_WEBHOOK: Fields = &[
        ("matchConditions", Keyed("name", PLAIN)),
    ];
    pub(crate) const VALIDATING_WEBHOOK_CONFIGURATION: Fields = &[
        ("metadata", Object(super::meta_v1::OBJECT_META)),
        ("webhooks", Keyed("name", VALIDATING_WEBHOOK)),
    ];
}

pub(crate) mod core_v1 {
    use crate::patch::schema::{Fields, PLAIN, Rule::{Keyed, Object, Set}};

    pub(crate) const CONTAINER: Fields = &[
        ("env", Keyed("name", PLAIN)),
        ("ports", Keyed("containerPort", PLAIN)),
        ("volumeDevices", Keyed("devicePath", PLAIN)),
        ("volumeMounts", Keyed("mountPath", PLAIN)),
    ];
    pub(crate) const EPHEMERAL_CONTAINER: Fields = &[
        ("env", Keyed("name", PLAIN)),
        ("ports", Keyed("containerPort", PLAIN)),
        ("volumeDevices", Keyed("devicePath", PLAIN)),
        ("volumeMounts", Keyed("mountPath", PLAIN)),
    ];
    pub(crate) const EPHEMERAL_VOLUME_SOURCE: Fields = &[
        ("volumeClaimTemplate", Object(PERSISTENT_VOLUME_CLAIM_TEMPLATE)),
    ];
    pub(crate) const NAMESPACE: Fields = &[
        ("metadata", Object(super::meta_v1::OBJECT_META)),
        ("status", Object(NAMESPACE_STATUS)),
    ];
    pub(crate) const NAMESPACE_STATUS: Fields = &[
        ("conditions", Keyed("type", PLAIN)),
    ];
    pub(crate) const NODE: Fields = &[
        ("metadata", Object(super::meta_v1::OBJECT_META)),
        ("spec", Object(NODE_SPEC)),
        ("status", Object(NODE_STATUS)),
    ];
    pub(crate) const NODE_SPEC: Fields = &[
        ("podCIDRs", Set),
    ];
    pub(crate) const NODE_STATUS: Fields = &[
        ("addresses", Keyed("type", PLAIN)),
        ("conditions", Keyed("type", PLAIN)),
    ];
    pub(crate) const PERSISTENT_VOLUME_CLAIM_TEMPLATE: Fields = &[
        ("metadata", Object(super::meta_v1::OBJECT_META)),
    ];
    pub(crate) const POD: Fields = &[
        ("metadata", Object(super::meta_v1::OBJECT_META)),
        ("spec", Object(POD_SPEC)),
        ("status", Object(POD_STATUS)),
    ];
    pub(crate) const POD_SPEC: Fields = &[
        ("containers", Keyed("name", CONTAINER)),
        ("ephemeralContainers", Keyed("name", EPHEMERAL_CONTAINER)),
        ("hostAliases", Keyed("ip", PLAIN)),
        ("imagePullSecrets", Keyed("name", PLAIN)),
        ("initContainers", Keyed("name", CONTAINER)),
        ("resourceClaims", Keyed("name", PLAIN)),
        ("schedulingGates", Keyed("name", PLAIN)),
        ("topologySpreadConstraints", Keyed("topologyKey", PLAIN)),
        ("volumes", Keyed("name", VOLUME)),
    ];
    pub(crate) const POD_STATUS: Fields = &[
        ("conditions", Keyed("type", PLAIN)),
        ("hostIPs", Keyed("ip", PLAIN)),
        ("podIPs", Keyed("ip", PLAIN)),
        ("resourceClaimStatuses", Keyed("name", PLAIN)),
    ];
    pub(crate) const POD_TEMPLATE: Fields = &[
        ("metadata", Object(super::meta_v1::OBJECT_META)),
        ("template", Object(POD_TEMPLATE_SPEC)),
    ];
    pub(crate) const POD_TEMPLATE_SPEC: Fields = &[
        ("metadata", Object(super::meta_v1::OBJECT_META)),
        ("spec", Object(POD_SPEC)),
    ];
    pub(crate) const SERVICE: Fields = &[
        ("metadata", Object(super::meta_v1::OBJECT_META)),
        ("spec", Object(SERVICE_SPEC)),
        ("status", Object(SERVICE_STATUS)),
    ];
    pub(crate) const SERVICE_ACCOUNT: Fields = &[
        ("metadata", Object(super::meta_v1::OBJECT_META)),
        ("secrets", Keyed("name", PLAIN)),
    ];
    pub(crate) const SERVICE_SPEC: Fields = &[
        ("ports", Keyed("port", PLAIN)),
    ];
    pub(crate) const SERVICE_STATUS: Fields = &[
        ("conditions", Keyed("type", PLAIN)),
    ];
    pub(crate) const VOLUME: Fields = &[
        ("ephemeral", Object(EPHEMERAL_VOLUME_SOURCE)),
    ];
}

pub(crate) mod storage_v1 {
    use crate::patch::schema::{Fields, PLAIN, Rule::{Keyed, Object}};

    pub(crate) const CSI_NODE: Fields = &[
        ("metadata", Object(super::meta_v1::OBJECT_META)),
        ("spec", Object(CSI_NODE_SPEC)),
    ];
    pub(crate) const CSI_NODE_SPEC: Fields = &[
        ("drivers", Keyed("name", PLAIN)),
    ];
}

pub(crate) mod meta_v1 {
    use crate::patch::schema::{Fields, PLAIN, Rule::{Keyed, Set}};

    pub(crate) const OBJECT_META: Fields = &[
        ("finalizers", Set),
        ("ownerReferences", Keyed("uid", PLAIN)),
    ];
}
