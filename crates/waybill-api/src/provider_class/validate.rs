//! What a class may say, and how it may change.

use std::collections::BTreeSet;

use waybill_core::{
    chain::Chain,
    id::{DriverName, ProviderClassName},
    provider::{ALLOWED_FIELDS, ALLOWED_NAMESPACES, AllowListError, is_misspelt},
};

use super::{
    IMMUTABLE_FIELDS, ProviderClass,
    hints::{HINTS, Hints},
    immutable::{Annotated, ImmutableField, fixed_once_set},
};
use crate::{
    field::{ErrorList, FieldError, FieldPath},
    names::is_unseen,
};

/// Everything that is wrong with a new class (CSI-15, CSI-16, CSI-17, OP-30).
pub fn validate_create(class: &ProviderClass) -> ErrorList {
    let mut errors = ErrorList::new();
    errors.extend(name_fault(class));
    errors.extend(annotation_fault(class));
    errors.extend(driver_fault(class));
    errors.extend(list_fault(class, ALLOWED_FIELDS, class.allowed_fields().err()));
    errors.extend(list_fault(class, ALLOWED_NAMESPACES, class.allowed_namespaces().err()));
    let (_, hint_faults) = Hints::read(&class.spec.parameters);
    errors.extend(hint_faults.iter().map(|fault| {
        let path = parameters_path().key(fault.parameter());
        FieldError::invalid(path, VALUE_HIDDEN, fault.to_string())
    }));
    errors.extend(misspelt_hints(class));
    for fault in control_faults(class) {
        if errors.iter().all(|error| error.path() != fault.path()) {
            errors.push(fault);
        }
    }
    errors
}

/// What could drive a terminal or forge a line of a log, and is in no parameter of any driver. Certificates and
/// lists of objects have lines.
fn control_faults(class: &ProviderClass) -> impl Iterator<Item = FieldError> {
    class.spec.parameters.iter().filter_map(|(name, value)| {
        let detail = if name.contains(char::is_control) {
            "the name of a parameter may not contain control characters"
        } else if value.contains(is_unseen) {
            "may not contain control characters other than tabs and line ends"
        } else {
            return None;
        };
        let path = parameters_path().key(&name.escape_debug().to_string());
        Some(FieldError::invalid(path, VALUE_HIDDEN, detail))
    })
}

/// Hints that nobody would read.
fn misspelt_hints(class: &ProviderClass) -> impl Iterator<Item = FieldError> {
    class.spec.parameters.keys().filter_map(|name| {
        let meant = HINTS.iter().find(|known| is_misspelt(name, known))?;
        let detail = format!("is read by nobody: the parameter is called {meant}, case and all");
        Some(FieldError::invalid(parameters_path().key(name), VALUE_HIDDEN, detail))
    })
}

/// Everything that is wrong with `new` in place of `old` (CSI-17, OP-36).
///
/// A field that may not change is reported for that alone, whatever else is wrong with it, so no
/// field is reported twice.
pub fn validate_update(new: &ProviderClass, old: &ProviderClass) -> ErrorList {
    let mut errors = ErrorList::new();
    if new.metadata.name != old.metadata.name {
        let path = FieldPath::new("metadata").child("name");
        errors.push(FieldError::invalid(path, &new.metadata.name, IMMUTABLE));
    }
    let annotated = Annotated::of(old).fields;
    let fixed: BTreeSet<_> = annotated.iter().cloned().chain(fixed_once_set(old)).collect();
    let changed = fixed.iter().filter(|field| field.differs(new, old));
    errors.extend(
        changed.map(|field| FieldError::invalid(field.path(), shown_value(field, new), IMMUTABLE)),
    );
    for fault in validate_create(new) {
        if errors.iter().all(|error| error.path() != fault.path()) {
            errors.push(fault);
        }
    }
    errors.extend(shrinking_fault(new, &annotated));
    errors
}

/// Stands in errors where Kubernetes would print a value that we do not show.
const VALUE_HIDDEN: &str = "<value hidden>";

/// The text is upstream's.
const IMMUTABLE: &str = "field is immutable";

/// The text is upstream's.
const SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case \
    alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character \
    (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

const DRIVER_RULE: &str = "a driver name must consist of at most 63 alphanumeric characters, '-' \
    or '.', and must start and end with an alphanumeric character";

fn parameters_path() -> FieldPath {
    FieldPath::new("spec").child("parameters")
}

fn annotation_path() -> FieldPath {
    FieldPath::new("metadata").child("annotations").key(IMMUTABLE_FIELDS)
}

fn name_fault(class: &ProviderClass) -> Option<FieldError> {
    let path = FieldPath::new("metadata").child("name");
    let name = &class.metadata.name;
    if name.is_empty() {
        return Some(FieldError::required(path, "name or generateName is required"));
    }
    let detail = match name.len() {
        0..=253 => SUBDOMAIN_RULE,
        _ => "must be no more than 253 bytes",
    };
    ProviderClassName::parse(name).err().map(|_| FieldError::invalid(path, name, detail))
}

fn driver_fault(class: &ProviderClass) -> Option<FieldError> {
    let path = FieldPath::new("spec").child("driver");
    let driver = &class.spec.driver;
    if driver.is_empty() {
        return Some(FieldError::required(path, "driver name is required"));
    }
    DriverName::parse(driver).err().map(|_| FieldError::invalid(path, driver, DRIVER_RULE))
}

fn list_fault(
    class: &ProviderClass,
    parameter: &str,
    fault: Option<AllowListError>,
) -> Option<FieldError> {
    let detail = Chain(&fault?).to_string();
    let text = class.parameter(parameter).unwrap_or_default();
    Some(FieldError::invalid(parameters_path().key(parameter), text, detail))
}

fn annotation_fault(class: &ProviderClass) -> Option<FieldError> {
    let unknown = Annotated::of(class).unknown;
    let detail = "each entry must be spec.driver, spec.parameters or spec.parameters.<key>";
    (!unknown.is_empty()).then(|| FieldError::invalid(annotation_path(), unknown.join(","), detail))
}

/// Entries of the annotation stay; one that cannot be read was reported already.
fn shrinking_fault(new: &ProviderClass, old: &BTreeSet<ImmutableField>) -> Option<FieldError> {
    let annotated = Annotated::of(new);
    let missing: Vec<_> = old.difference(&annotated.fields).map(ToString::to_string).collect();
    if missing.is_empty() || !annotated.unknown.is_empty() {
        return None;
    }
    let detail = format!("entries cannot be removed: {}", missing.join(","));
    Some(FieldError::forbidden(annotation_path(), detail))
}

/// The new value, where it may be shown.
fn shown_value<'a>(field: &ImmutableField, new: &'a ProviderClass) -> &'a str {
    match field {
        ImmutableField::Driver => &new.spec.driver,
        ImmutableField::Parameter(key)
            if [ALLOWED_FIELDS, ALLOWED_NAMESPACES].contains(&&**key) =>
        {
            new.parameter(key).unwrap_or_default()
        }
        ImmutableField::Parameters | ImmutableField::Parameter(_) => VALUE_HIDDEN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(parameters: &[(&str, &str)]) -> ProviderClass {
        let mut class = ProviderClass::default();
        class.metadata.name = "vault".to_owned();
        class.spec.driver = "secrets.csi.example.com".to_owned();
        class.spec.parameters =
            parameters.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        class
    }

    fn annotated(annotation: &str, parameters: &[(&str, &str)]) -> ProviderClass {
        let mut class = class(parameters);
        class.metadata.annotations.insert(IMMUTABLE_FIELDS.into(), annotation.into());
        class
    }

    #[track_caller]
    fn check(errors: &[FieldError], expected: &[&str]) {
        let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts, expected);
    }

    #[track_caller]
    fn creates(class: &ProviderClass, expected: &[&str]) {
        check(&validate_create(class), expected);
    }

    #[track_caller]
    fn updates(new: &ProviderClass, old: &ProviderClass, expected: &[&str]) {
        check(&validate_update(new, old), expected);
    }

    /// CSI-15
    #[test]
    fn a_full_class_is_valid_csi_15() {
        let parameters = [
            ("vaultAddr", "https://vault.example.com"),
            ("allowedNamespaces", "default,production"),
            ("allowedFields", "secret/data/*,config/app/*"),
            ("envInjection.rpcTimeout", "5s"),
            ("envInjection.maxPayloadBytes", "1048576"),
            ("envInjection.maxValueBytes", "32768"),
            ("envInjection.maxInFlight", "1000"),
        ];
        let full = annotated("spec.parameters.allowedFields,spec.driver", &parameters);
        creates(&full, &[]);
        updates(&full, &full, &[]);
        creates(&class(&[]), &[]);
    }

    #[test]
    fn names_are_subdomains() {
        let named = |name: &str| {
            let mut class = class(&[]);
            class.metadata.name = name.to_owned();
            validate_create(&class)
        };
        check(&named(""), &["metadata.name: Required value: name or generateName is required"]);
        check(&named(&"n".repeat(253)), &[]);
        let overlong = "n".repeat(254);
        let text =
            format!("metadata.name: Invalid value: \"{overlong}\": must be no more than 253 bytes");
        check(&named(&overlong), &[&text]);
        let text = format!("metadata.name: Invalid value: \"Vault\": {SUBDOMAIN_RULE}");
        check(&named("Vault"), &[&text]);
    }

    /// CSI-15
    #[test]
    fn the_driver_is_required_and_fit_for_a_directory_csi_15() {
        let driven = |driver: &str| {
            let mut class = class(&[]);
            class.spec.driver = driver.to_owned();
            validate_create(&class)
        };
        check(&driven(""), &["spec.driver: Required value: driver name is required"]);
        check(&driven(&"d".repeat(63)), &[]);
        for bad in ["../etc", "a/b", ".a", "a_b", &"d".repeat(64)] {
            let text = format!("spec.driver: Invalid value: \"{bad}\": {DRIVER_RULE}");
            check(&driven(bad), &[&text]);
        }
    }

    /// CSI-16
    #[test]
    fn bad_allow_lists_are_shown_csi_16() {
        creates(
            &class(&[("allowedNamespaces", "a,,b"), ("allowedFields", "a/[bc]")]),
            &[
                "spec.parameters[allowedFields]: Invalid value: \"a/[bc]\": item 1 is not a \
                 pattern: '[' at offset 2 is not supported, only '*', '**' and '?' are special",
                "spec.parameters[allowedNamespaces]: Invalid value: \"a,,b\": item 2 is empty",
            ],
        );
        creates(&class(&[("allowedNamespaces", ""), ("allowedFields", "")]), &[]);
    }

    /// CSI-16, OP-30
    #[test]
    fn parameters_under_almost_their_names_are_refused_csi_16() {
        let misspelt = "another parameter has almost this name, and nobody reads it: case and \
                        spelling count";
        creates(
            &class(&[
                ("allowedfields", "app/*"),
                ("allowedNamespace", "shop"),
                ("envInjection.maxinflight", "5"),
                ("vaultaddr", "none of ours to judge"),
            ]),
            &[
                &format!("spec.parameters[allowedFields]: Invalid value: \"\": {misspelt}"),
                &format!("spec.parameters[allowedNamespaces]: Invalid value: \"\": {misspelt}"),
                "spec.parameters[envInjection.maxinflight]: Invalid value: \"<value hidden>\": is read \
                 by nobody: the parameter is called envInjection.maxInFlight, case and all",
            ],
        );
    }

    /// CSI-16
    #[test]
    fn parameters_hold_no_control_characters_csi_16() {
        creates(&class(&[("caBundle", "-----BEGIN\r\n\tx\n")]), &[]);
        let lines = "may not contain control characters other than tabs and line ends";
        let named = "the name of a parameter may not contain control characters";
        creates(
            &class(&[
                ("a\nb", "x"),
                ("vaultAddr", "https://a\u{1b}[2J"),
                ("vaultRole", "a\u{9b}2J"),
                ("x\u{1b}", "x"),
                ("z", "\0"),
            ]),
            &[
                &format!("spec.parameters[a\\nb]: Invalid value: \"<value hidden>\": {named}"),
                &format!("spec.parameters[vaultAddr]: Invalid value: \"<value hidden>\": {lines}"),
                &format!("spec.parameters[vaultRole]: Invalid value: \"<value hidden>\": {lines}"),
                &format!("spec.parameters[x\\u{{1b}}]: Invalid value: \"<value hidden>\": {named}"),
                &format!("spec.parameters[z]: Invalid value: \"<value hidden>\": {lines}"),
            ],
        );
        // A list is reported once.
        assert_eq!(validate_create(&class(&[("allowedFields", "a\u{1b}")])).len(), 1);
        assert_eq!(validate_create(&class(&[("allowedNamespaces", "a\u{1b}")])).len(), 1);
    }

    #[test]
    fn bad_hints_are_refused_without_their_values_op_30() {
        creates(
            &class(&[
                ("envInjection.rpcTimeout", "hunter2"),
                ("envInjection.maxPayloadBytes", "1048577"),
                ("envInjection.maxValueBytes", "0"),
                ("envInjection.maxInFlight", "1001"),
            ]),
            &[
                "spec.parameters[envInjection.maxPayloadBytes]: Invalid value: \"<value hidden>\": \
                 must be a whole number from 1 to 1048576",
                "spec.parameters[envInjection.maxValueBytes]: Invalid value: \"<value hidden>\": \
                 must be a whole number from 1 to 1048576",
                "spec.parameters[envInjection.maxInFlight]: Invalid value: \"<value hidden>\": must \
                 be a whole number from 1 to 1000",
                "spec.parameters[envInjection.rpcTimeout]: Invalid value: \"<value hidden>\": must \
                 be a duration above 0 and up to 60s, such as 500ms, 5s or 1m",
            ],
        );
    }

    /// CSI-17
    #[test]
    fn the_annotation_names_known_fields_only_csi_17() {
        creates(
            &annotated("spec.driver,spec.drivers,metadata.name", &[]),
            &["metadata.annotations[storage.k8s.io/immutable-fields]: Invalid value: \
               \"spec.drivers,metadata.name\": each entry must be spec.driver, spec.parameters or \
               spec.parameters.<key>"],
        );
    }

    #[test]
    fn everything_wrong_is_reported_at_once() {
        let mut class = annotated("x", &[("allowedFields", "!"), ("envInjection.maxInFlight", "")]);
        class.metadata.name = "-".to_owned();
        class.spec.driver = String::new();
        assert_eq!(validate_create(&class).len(), 5);
    }

    /// CSI-17
    #[test]
    fn listed_fields_cannot_change_csi_17() {
        let immutable = |key: &str| {
            format!("spec.parameters[{key}]: Invalid value: \"<value hidden>\": field is immutable")
        };
        let annotation = "spec.parameters.a, spec.parameters.b, spec.parameters.c.d";
        let old = annotated(annotation, &[("a", "1"), ("b", "1"), ("x", "1")]);
        updates(
            &annotated(annotation, &[("a", "2"), ("c.d", "new"), ("x", "2"), ("y", "new")]),
            &old,
            &[&immutable("a"), &immutable("b"), &immutable("c.d")],
        );
        updates(&annotated(annotation, &[("a", "1"), ("b", "1"), ("y", "1")]), &old, &[]);
    }

    /// CSI-17
    #[test]
    fn all_parameters_can_be_fixed_together_csi_17() {
        let old = annotated("spec.parameters", &[("a", "1")]);
        let text = "spec.parameters: Invalid value: \"<value hidden>\": field is immutable";
        updates(&annotated("spec.parameters", &[("a", "2")]), &old, &[text]);
        updates(&annotated("spec.parameters", &[("a", "1"), ("b", "1")]), &old, &[text]);
        updates(&annotated("spec.parameters", &[]), &old, &[text]);
        updates(&old, &old, &[]);
    }

    /// CSI-17
    #[test]
    fn an_entry_holds_from_the_next_update_csi_17() {
        let old = class(&[("a", "1")]);
        updates(&annotated("spec.parameters.a", &[("a", "2")]), &old, &[]);
    }

    #[test]
    fn entries_may_be_added_and_never_removed_op_36() {
        let removed = |entries: &str| {
            format!(
                "metadata.annotations[storage.k8s.io/immutable-fields]: Forbidden: entries cannot \
                 be removed: {entries}"
            )
        };
        let old = annotated("spec.parameters.a,spec.driver", &[]);
        updates(&annotated("spec.driver,spec.parameters.b,spec.parameters.a", &[]), &old, &[]);
        updates(&annotated("spec.driver", &[]), &old, &[&removed("spec.parameters.a")]);
        updates(&class(&[]), &old, &[&removed("spec.driver,spec.parameters.a")]);
        updates(
            &annotated("spec.parameters", &[]),
            &old,
            &[&removed("spec.driver,spec.parameters.a")],
        );
        assert_eq!(validate_update(&annotated("nonsense", &[]), &old).len(), 1);
    }

    #[test]
    fn driver_and_allow_lists_are_fixed_once_set_op_36() {
        let old = class(&[("allowedFields", "a/*"), ("allowedNamespaces", "prod")]);
        let mut new = class(&[("allowedFields", "**")]);
        new.spec.driver = "other.example.com".to_owned();
        updates(
            &new,
            &old,
            &[
                "spec.driver: Invalid value: \"other.example.com\": field is immutable",
                "spec.parameters[allowedFields]: Invalid value: \"**\": field is immutable",
                "spec.parameters[allowedNamespaces]: Invalid value: \"\": field is immutable",
            ],
        );
        updates(&old, &class(&[]), &[]);
    }

    #[test]
    fn no_field_is_reported_twice_op_36() {
        let old = annotated("spec.parameters.allowedFields,spec.driver", &[("allowedFields", "a")]);
        let mut new = old.clone();
        new.spec.parameters.insert("allowedFields".into(), "[".into());
        new.spec.driver = "-".to_owned();
        new.metadata.name = "-".to_owned();
        updates(
            &new,
            &old,
            &[
                "metadata.name: Invalid value: \"-\": field is immutable",
                "spec.driver: Invalid value: \"-\": field is immutable",
                "spec.parameters[allowedFields]: Invalid value: \"[\": field is immutable",
            ],
        );
    }

    #[test]
    fn no_error_shows_a_parameter() {
        let old = annotated("spec.parameters.token,spec.parameters", &[("token", "hunter1")]);
        let new = annotated(
            "spec.driver",
            &[("token", "hunter2"), ("envInjection.maxInFlight", "hunter3")],
        );
        let texts: Vec<_> = validate_update(&new, &old).iter().map(ToString::to_string).collect();
        assert_eq!(texts.len(), 4);
        assert!(!texts.concat().contains("hunter"), "{texts:?}");
    }
}
