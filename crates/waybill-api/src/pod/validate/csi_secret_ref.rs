//! `csiSecretRef`: a value that a CSI driver fetches.
//!
//! Whether the class exists and allows the key is not a question of shape; admission asks it
//! (CSI-13).

use waybill_core::id::DriverName;

use crate::{
    field::{ErrorList, FieldError, FieldPath},
    names::{is_unseen, subdomain_faults},
    pod::{CsiSecretSelector, EnvRules},
};

/// Checks the reference that stands at `path`.
pub(super) fn check(
    rules: &EnvRules,
    reference: &CsiSecretSelector,
    path: &FieldPath,
    errors: &mut ErrorList,
) {
    if !rules.allows_csi_secret_ref() {
        let detail = "CSIDirectEnvInjection feature gate is not enabled";
        errors.push(FieldError::forbidden(path.clone(), detail));
        return;
    }
    let CsiSecretSelector { driver, provider_class_name, key, parameters, optional } = reference;
    if driver.is_empty() {
        errors.push(FieldError::required(path.child("driver"), "driver name is required"));
    } else if DriverName::parse(driver).is_err() {
        errors.push(FieldError::invalid(path.child("driver"), driver, DRIVER_RULE));
    }
    let class_path = path.child("providerClassName");
    if provider_class_name.is_empty() {
        errors.push(FieldError::required(class_path, "providerClassName is required"));
    } else {
        let faults = subdomain_faults(provider_class_name);
        super::push_faults(faults, provider_class_name, &class_path, errors);
    }
    if key.is_empty() {
        errors.push(FieldError::required(path.child("key"), "key is required"));
    } else if key.contains(char::is_control) {
        let shown = key.escape_debug().to_string();
        errors.push(FieldError::invalid(path.child("key"), shown, CONTROL_RULE));
    }
    for (name, value) in parameters {
        if name.contains(char::is_control) || value.has(is_unseen) {
            let path = path.child("parameters").key(&name.escape_debug().to_string());
            errors.push(FieldError::invalid(path, "<value hidden>", CONTROL_RULE));
        }
    }
    if *optional && !rules.allows_csi_optional() {
        errors.push(FieldError::forbidden(path.child("optional"), OPTIONAL_RULE));
    }
}

/// The rule of [`DriverName`], in the words of an API error.
const DRIVER_RULE: &str = "a CSI driver name must have at most 63 characters, consist of \
    alphanumeric characters, '-' or '.', and start and end with an alphanumeric character";

/// A key is shown where variables came from; no backend has such.
const CONTROL_RULE: &str = "may not contain control characters";

/// OP-33.
const OPTIONAL_RULE: &str = "may be true only from emulated version 1.37 on, or with the option \
    csiEnvOptional";

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        gates::{FeatureGate, FeatureGates, KubeVersion},
        pod::{
            EnvOptions,
            validate::testing::{check_source, check_source_under},
        },
    };

    fn reference() -> Value {
        json!({"driver": "os.csi.waybill.dev", "providerClassName": "vault-secrets", "key": "a/b"})
    }

    /// [`reference`] with one field replaced.
    fn with(field: &str, value: impl Into<Value>) -> Value {
        let mut changed = reference();
        changed[field] = value.into();
        json!({"csiSecretRef": changed})
    }

    /// CSI-09
    #[test]
    fn a_whole_reference_passes_csi_09() {
        check_source(&json!({"csiSecretRef": reference()}), &[]);
        check_source(&with("parameters", json!({"vaultRole": "x"})), &[]);
        check_source(&with("optional", true), &[]);
        check_source(&with("key", "any text: é"), &[]);
    }

    /// CSI-11
    #[test]
    fn missing_fields_are_reported_at_once_csi_11() {
        check_source(
            &json!({"csiSecretRef": {}}),
            &[
                "csiSecretRef.driver: Required value: driver name is required",
                "csiSecretRef.providerClassName: Required value: providerClassName is required",
                "csiSecretRef.key: Required value: key is required",
            ],
        );
    }

    /// CSI-09
    #[test]
    fn a_key_forges_no_line_csi_09() {
        for (key, shown) in [("a\nFORGED", "a\\nFORGED"), ("a\u{1b}[31m", "a\\u{1b}[31m")] {
            // The text of the error quotes what is escaped already.
            let shown = format!("{shown:?}");
            let text = format!("csiSecretRef.key: Invalid value: {shown}: {CONTROL_RULE}");
            check_source(&with("key", key), &[&text]);
        }
        check_source(
            &with("key", "a\u{9b}31m"),
            &[&format!("csiSecretRef.key: Invalid value: \"a\\\\u{{9b}}31m\": {CONTROL_RULE}")],
        );
    }

    /// CSI-09
    #[test]
    fn parameters_forge_no_line_csi_09() {
        check_source(&with("parameters", json!({"objects": "- a\n\t- b\r\n"})), &[]);
        for (name, value, shown) in
            [("a\nb", "x", "a\\nb"), ("field", "\u{1b}[2J", "field"), ("field", "\0", "field")]
        {
            let text = format!(
                "csiSecretRef.parameters[{shown}]: Invalid value: \"<value hidden>\": {CONTROL_RULE}"
            );
            check_source(&with("parameters", json!({name: value})), &[&text]);
        }
    }

    /// CSI-10: one error, and not the missing fields as well.
    #[test]
    fn the_gate_off_forbids_and_says_no_more_csi_10() {
        let off = EnvRules::for_create(&FeatureGates::new(KubeVersion::NEWEST));
        let forbidden =
            "csiSecretRef: Forbidden: CSIDirectEnvInjection feature gate is not enabled";
        for source in [json!({"csiSecretRef": {}}), json!({"csiSecretRef": reference()})] {
            check_source_under(&off, &source, &[forbidden]);
        }
    }

    #[test]
    fn drivers_are_names_fit_for_a_directory() {
        for bad in ["..", "../x", "a/b", "-a", "a.", "a b", "a\0", &"x".repeat(64)] {
            let shown = bad.replace('\0', "\\x00");
            check_source(
                &with("driver", bad),
                &[&format!("csiSecretRef.driver: Invalid value: \"{shown}\": {DRIVER_RULE}")],
            );
        }
    }

    #[test]
    fn classes_are_subdomains() {
        let source = with("providerClassName", "Vault");
        check_source(
            &source,
            &["csiSecretRef.providerClassName: Invalid value: \"Vault\": a \
            lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' \
            or '.', and must start and end with an alphanumeric character (e.g. 'example.com', \
            regex used for validation is \
            '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"],
        );
    }

    #[test]
    fn optional_is_forbidden_before_its_version_op_33() {
        let gates = FeatureGates::new(KubeVersion::parse("1.36").unwrap());
        let gates = gates.with(FeatureGate::CsiDirectEnvInjection, true).unwrap();
        let rules = EnvRules::for_create(&gates);
        check_source_under(&rules, &with("optional", false), &[]);
        check_source_under(
            &rules,
            &with("optional", true),
            &[&format!("csiSecretRef.optional: Forbidden: {OPTIONAL_RULE}")],
        );
        let options = EnvOptions { csi_env_optional: true, ..EnvOptions::default() };
        check_source_under(&rules.with_options(options), &with("optional", true), &[]);
    }
}
