//! Messages of `admissionregistration_v1`. Written by `cargo xtask gen` from k8s-pb 0.9.0; do not edit.

use crate::protobuf::table::{Message, Type::{Bytes, Int32, Int64, Message as Nested, Text}, field, inline, kept, list};

pub(crate) static AUDIT_ANNOTATION: Message = Message(&[
    kept(1, "key", Text),
    kept(2, "valueExpression", Text),
]);

pub(crate) static EXPRESSION_WARNING: Message = Message(&[
    kept(2, "fieldRef", Text),
    kept(3, "warning", Text),
]);

pub(crate) static MATCH_CONDITION: Message = Message(&[
    kept(1, "name", Text),
    kept(2, "expression", Text),
]);

pub(crate) static MATCH_RESOURCES: Message = Message(&[
    kept(1, "namespaceSelector", Nested(&super::meta_v1::LABEL_SELECTOR)),
    kept(2, "objectSelector", Nested(&super::meta_v1::LABEL_SELECTOR)),
    list(3, "resourceRules", Nested(&NAMED_RULE_WITH_OPERATIONS)),
    list(4, "excludeResourceRules", Nested(&NAMED_RULE_WITH_OPERATIONS)),
    kept(7, "matchPolicy", Text),
]);

pub(crate) static MUTATING_WEBHOOK: Message = Message(&[
    kept(1, "name", Text),
    field(2, "clientConfig", Nested(&WEBHOOK_CLIENT_CONFIG)),
    list(3, "rules", Nested(&RULE_WITH_OPERATIONS)),
    kept(4, "failurePolicy", Text),
    kept(5, "namespaceSelector", Nested(&super::meta_v1::LABEL_SELECTOR)),
    kept(6, "sideEffects", Text),
    kept(7, "timeoutSeconds", Int32),
    list(8, "admissionReviewVersions", Text),
    kept(9, "matchPolicy", Text),
    kept(10, "reinvocationPolicy", Text),
    kept(11, "objectSelector", Nested(&super::meta_v1::LABEL_SELECTOR)),
    list(12, "matchConditions", Nested(&MATCH_CONDITION)),
]);

pub(crate) static MUTATING_WEBHOOK_CONFIGURATION: Message = Message(&[
    field(1, "metadata", Nested(&super::meta_v1::OBJECT_META)),
    list(2, "webhooks", Nested(&MUTATING_WEBHOOK)),
]);

pub(crate) static NAMED_RULE_WITH_OPERATIONS: Message = Message(&[
    list(1, "resourceNames", Text),
    inline(2, &RULE_WITH_OPERATIONS),
]);

pub(crate) static PARAM_KIND: Message = Message(&[
    field(1, "apiVersion", Text),
    field(2, "kind", Text),
]);

pub(crate) static PARAM_REF: Message = Message(&[
    field(1, "name", Text),
    field(2, "namespace", Text),
    kept(3, "selector", Nested(&super::meta_v1::LABEL_SELECTOR)),
    kept(4, "parameterNotFoundAction", Text),
]);

pub(crate) static RULE: Message = Message(&[
    list(1, "apiGroups", Text),
    list(2, "apiVersions", Text),
    list(3, "resources", Text),
    kept(4, "scope", Text),
]);

pub(crate) static RULE_WITH_OPERATIONS: Message = Message(&[
    list(1, "operations", Text),
    inline(2, &RULE),
]);

pub(crate) static SERVICE_REFERENCE: Message = Message(&[
    kept(1, "namespace", Text),
    kept(2, "name", Text),
    kept(3, "path", Text),
    kept(4, "port", Int32),
]);

pub(crate) static TYPE_CHECKING: Message = Message(&[
    list(1, "expressionWarnings", Nested(&EXPRESSION_WARNING)),
]);

pub(crate) static VALIDATING_ADMISSION_POLICY: Message = Message(&[
    field(1, "metadata", Nested(&super::meta_v1::OBJECT_META)),
    field(2, "spec", Nested(&VALIDATING_ADMISSION_POLICY_SPEC)),
    field(3, "status", Nested(&VALIDATING_ADMISSION_POLICY_STATUS)),
]);

pub(crate) static VALIDATING_ADMISSION_POLICY_BINDING: Message = Message(&[
    field(1, "metadata", Nested(&super::meta_v1::OBJECT_META)),
    field(2, "spec", Nested(&VALIDATING_ADMISSION_POLICY_BINDING_SPEC)),
]);

pub(crate) static VALIDATING_ADMISSION_POLICY_BINDING_SPEC: Message = Message(&[
    field(1, "policyName", Text),
    kept(2, "paramRef", Nested(&PARAM_REF)),
    kept(3, "matchResources", Nested(&MATCH_RESOURCES)),
    list(4, "validationActions", Text),
]);

pub(crate) static VALIDATING_ADMISSION_POLICY_SPEC: Message = Message(&[
    kept(1, "paramKind", Nested(&PARAM_KIND)),
    kept(2, "matchConstraints", Nested(&MATCH_RESOURCES)),
    list(3, "validations", Nested(&VALIDATION)),
    kept(4, "failurePolicy", Text),
    list(5, "auditAnnotations", Nested(&AUDIT_ANNOTATION)),
    list(6, "matchConditions", Nested(&MATCH_CONDITION)),
    list(7, "variables", Nested(&VARIABLE)),
]);

pub(crate) static VALIDATING_ADMISSION_POLICY_STATUS: Message = Message(&[
    field(1, "observedGeneration", Int64),
    kept(2, "typeChecking", Nested(&TYPE_CHECKING)),
    list(3, "conditions", Nested(&super::meta_v1::CONDITION)),
]);

pub(crate) static VALIDATING_WEBHOOK: Message = Message(&[
    kept(1, "name", Text),
    field(2, "clientConfig", Nested(&WEBHOOK_CLIENT_CONFIG)),
    list(3, "rules", Nested(&RULE_WITH_OPERATIONS)),
    kept(4, "failurePolicy", Text),
    kept(5, "namespaceSelector", Nested(&super::meta_v1::LABEL_SELECTOR)),
    kept(6, "sideEffects", Text),
    kept(7, "timeoutSeconds", Int32),
    list(8, "admissionReviewVersions", Text),
    kept(9, "matchPolicy", Text),
    kept(10, "objectSelector", Nested(&super::meta_v1::LABEL_SELECTOR)),
    list(11, "matchConditions", Nested(&MATCH_CONDITION)),
]);

pub(crate) static VALIDATING_WEBHOOK_CONFIGURATION: Message = Message(&[
    field(1, "metadata", Nested(&super::meta_v1::OBJECT_META)),
    list(2, "webhooks", Nested(&VALIDATING_WEBHOOK)),
]);

pub(crate) static VALIDATION: Message = Message(&[
    kept(1, "expression", Text),
    field(2, "message", Text),
    kept(3, "reason", Text),
    field(4, "messageExpression", Text),
]);

pub(crate) static VARIABLE: Message = Message(&[
    kept(1, "name", Text),
    kept(2, "expression", Text),
]);

pub(crate) static WEBHOOK_CLIENT_CONFIG: Message = Message(&[
    kept(1, "service", Nested(&SERVICE_REFERENCE)),
    field(2, "caBundle", Bytes),
    kept(3, "url", Text),
]);
