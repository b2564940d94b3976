//! `fileKeyRef`: a variable from an env file in a volume (KEP-3721).
//!
//! The reference itself, the volume that it names, and who mounts that volume. Whether the file
//! exists is not known before the pod runs (FILE-08).

use std::collections::HashSet;

use waybill_core::env::{limits::FILE_NAME_BYTES, name::NameRules};

use super::push_faults;
use crate::{
    field::{ErrorList, FieldError, FieldPath},
    names::label_faults,
    pod::{Container, ContainerKind, FileKeySelector, PodEnvSpec},
};

/// Checks the reference that stands at `path`, without the volume behind it.
pub(super) fn check(reference: &FileKeySelector, path: &FieldPath, errors: &mut ErrorList) {
    check_volume_name(&reference.volume_name, &path.child("volumeName"), errors);
    check_file_path(&reference.path, &path.child("path"), errors);
    check_key(&reference.key, &path.child("key"), errors);
}

/// Checks that each reference in `spec`, which stands at `path`, names an `emptyDir` volume.
pub(super) fn check_volumes(spec: &PodEnvSpec, path: &FieldPath, errors: &mut ErrorList) {
    for (kind, position, container) in spec.all_containers() {
        for (index, reference) in references(container) {
            let name = &*reference.volume_name;
            let at = || {
                let env = path.child(kind.field()).index(position).child("env").index(index);
                env.child("valueFrom").child("fileKeyRef").child("volumeName")
            };
            match spec.volumes.iter().find(|volume| volume.name == name) {
                // Reported as missing already.
                _ if name.is_empty() => {}
                None => errors.push(FieldError::not_found(at(), name)),
                Some(volume) if volume.is_empty_dir() => {}
                Some(_) => {
                    let detail = "referenced volume must be of type emptyDir";
                    errors.push(FieldError::invalid(at(), name, detail));
                }
            }
        }
    }
}

/// The mounts in `spec` through which a container could see or change an env file that is read for
/// it or for another (FILE-10, OP-20).
pub(in crate::pod) fn mount_findings(spec: &PodEnvSpec) -> Vec<MountFinding<'_>> {
    let all: HashSet<_> = spec.all_containers().flat_map(|(_, _, c)| file_volumes(c)).collect();
    let mut findings = Vec::new();
    for (kind, position, container) in spec.all_containers() {
        let own: HashSet<_> = file_volumes(container).collect();
        for (mount, found) in container.volume_mounts.iter().enumerate() {
            let volume = &*found.name;
            let fault = if own.contains(volume) {
                MountFault::MountedAndConsumed
            } else if kind != ContainerKind::Init && all.contains(volume) {
                MountFault::NotInit
            } else {
                continue;
            };
            findings.push(MountFinding { kind, position, mount, volume, fault });
        }
    }
    findings
}

/// One mount that should not be.
pub(in crate::pod) struct MountFinding<'a> {
    kind: ContainerKind,
    position: usize,
    mount: usize,
    volume: &'a str,
    fault: MountFault,
}

impl MountFinding<'_> {
    /// The mount, in the pod spec that stands at `spec`.
    pub(super) fn path(&self, spec: &FieldPath) -> FieldPath {
        let container = spec.child(self.kind.field()).index(self.position);
        container.child("volumeMounts").index(self.mount)
    }

    /// The finding in words.
    pub(super) fn text(&self) -> String {
        match self.fault {
            MountFault::MountedAndConsumed => format!(
                "a container should not mount volume {:?} and take variables from an env file in it",
                self.volume
            ),
            MountFault::NotInit => format!(
                "volume {:?} holds an env file, so only init containers should mount it",
                self.volume
            ),
        }
    }
}

#[derive(Clone, Copy)]
enum MountFault {
    MountedAndConsumed,
    NotInit,
}

fn references(container: &Container) -> impl Iterator<Item = (usize, &FileKeySelector)> {
    container.env.iter().enumerate().filter_map(|(index, variable)| {
        Some((index, variable.value_from.as_ref()?.file_key_ref.as_ref()?))
    })
}

/// The volumes from whose files `container` takes variables.
fn file_volumes(container: &Container) -> impl Iterator<Item = &str> {
    let names = references(container).map(|(_, reference)| &*reference.volume_name);
    names.filter(|name| !name.is_empty())
}

fn check_volume_name(name: &str, path: &FieldPath, errors: &mut ErrorList) {
    if name.is_empty() {
        errors.push(FieldError::required(path.clone(), ""));
    } else {
        push_faults(label_faults(name), name, path, errors);
    }
}

/// Released Kubernetes lets absolute paths through; the document does not (OP-23).
fn check_file_path(file: &str, path: &FieldPath, errors: &mut ErrorList) {
    if file.is_empty() {
        errors.push(FieldError::required(path.clone(), ""));
        return;
    }
    let mut faults = Vec::new();
    if file.starts_with('/') {
        faults.push("must be a relative path");
    }
    if file.split('/').any(|element| element == "..") {
        faults.push("must not contain '..'");
    } else if file.starts_with("..") {
        faults.push("must not start with '..'");
    }
    push_faults(faults, file, path, errors);
}

/// Always the relaxed rule: the key is looked up in a file and never becomes a name by itself.
fn check_key(key: &str, path: &FieldPath, errors: &mut ErrorList) {
    if key.is_empty() {
        errors.push(FieldError::required(path.clone(), ""));
        return;
    }
    push_faults(NameRules::Relaxed.faults(key.as_bytes()), key, path, errors);
    if key.len() > FILE_NAME_BYTES {
        errors.push(FieldError::too_long(path.clone(), FILE_NAME_BYTES));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        gates::FeatureGates,
        pod::{
            EnvOptions, EnvRules,
            validate::testing::{check_source, errors_under},
            warnings,
        },
    };

    fn reference() -> Value {
        json!({"volumeName": "v", "path": "env/file", "key": "KEY"})
    }

    /// [`reference`] with one field replaced.
    fn with(field: &str, value: &str) -> Value {
        let mut changed = reference();
        changed[field] = value.into();
        json!({"fileKeyRef": changed})
    }

    /// FILE-01, FILE-08
    #[test]
    fn a_whole_reference_passes_without_a_file_file_01_file_08() {
        check_source(&json!({"fileKeyRef": reference()}), &[]);
    }

    /// FILE-02, FILE-43
    #[test]
    fn missing_fields_are_required_file_02() {
        check_source(
            &json!({"fileKeyRef": {}}),
            &[
                "fileKeyRef.volumeName: Required value",
                "fileKeyRef.path: Required value",
                "fileKeyRef.key: Required value",
            ],
        );
    }

    /// FILE-03
    #[test]
    fn the_volume_is_a_label_and_known_file_03() {
        check_source(
            &with("volumeName", "other"),
            &["fileKeyRef.volumeName: Not found: \"other\""],
        );
        check_source(
            &with("volumeName", "V"),
            &[
                "fileKeyRef.volumeName: Invalid value: \"V\": a lowercase RFC 1123 label must consist \
             of lower case alphanumeric characters or '-', and must start and end with an \
             alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
                "fileKeyRef.volumeName: Not found: \"V\"",
            ],
        );
    }

    /// FILE-04
    #[test]
    fn the_volume_is_an_empty_dir_in_every_kind_of_container_file_04() {
        let rules = EnvRules::for_create(&FeatureGates::all_on());
        for kind in ContainerKind::ALL {
            let errors = |volume: Value| {
                let env = json!([{"name": "A"}, {"name": "B", "valueFrom": {
                    "fileKeyRef": reference()}}]);
                let spec = json!({kind.field(): [{"env": env}], "volumes": [volume]});
                errors_under(&rules, &spec)
            };
            assert_eq!(errors(json!({"name": "v", "emptyDir": {}})), [""; 0]);
            assert_eq!(errors(json!({"name": "v", "emptyDir": {"medium": "Memory"}})), [""; 0]);
            let at = format!("spec.{}[0].env[1].valueFrom.fileKeyRef.volumeName", kind.field());
            for source in ["hostPath", "secret", "configMap", "persistentVolumeClaim"] {
                assert_eq!(
                    errors(json!({"name": "v", source: {}})),
                    [format!(
                        "{at}: Invalid value: \"v\": referenced volume must be of type emptyDir"
                    )]
                );
            }
            let unknown = errors(json!({"name": "w", "emptyDir": {}}));
            assert_eq!(unknown, [format!("{at}: Not found: \"v\"")]);
        }
    }

    /// FILE-05
    #[test]
    fn paths_stay_inside_the_volume_file_05_op_23() {
        for fine in ["a", "a/b", "a..b", "a/..b", ".env", ".", "a/", "a//b"] {
            check_path(fine, &[]);
        }
        check_path("/a", &["must be a relative path"]);
        check_path("/", &["must be a relative path"]);
        check_path("..", &["must not contain '..'"]);
        check_path("../a", &["must not contain '..'"]);
        check_path("a/../b", &["must not contain '..'"]);
        check_path("a/..", &["must not contain '..'"]);
        check_path("...", &["must not start with '..'"]);
        check_path("..data", &["must not start with '..'"]);
        check_path("..data/a", &["must not start with '..'"]);
        check_path("..data/../a", &["must not contain '..'"]);
        check_path("/../a", &["must be a relative path", "must not contain '..'"]);
    }

    #[track_caller]
    fn check_path(file: &str, faults: &[&str]) {
        let error = |fault| format!("fileKeyRef.path: Invalid value: \"{file}\": {fault}");
        let expected: Vec<_> = faults.iter().map(error).collect();
        let expected: Vec<_> = expected.iter().map(String::as_str).collect();
        check_source(&with("path", file), &expected);
    }

    /// FILE-06
    #[test]
    fn keys_are_relaxed_names_of_128_bytes_file_06() {
        let invalid = |shown: &str| {
            format!(
                "fileKeyRef.key: Invalid value: \"{shown}\": a valid environment variable name \
                 must consist only of printable ASCII characters other than '='"
            )
        };
        let too_long = "fileKeyRef.key: Too long: may not be more than 128 bytes";
        check_source(&with("key", "1 a:b"), &[]);
        check_source(&with("key", &"k".repeat(128)), &[]);
        check_source(&with("key", &"k".repeat(129)), &[too_long]);
        check_source(&with("key", "a=b"), &[&invalid("a=b")]);
        check_source(&with("key", "Ç"), &[&invalid("Ç")]);
        check_source(&with("key", "a\n"), &[&invalid("a\\n")]);
        let both = "=".repeat(129);
        check_source(&with("key", &both), &[&invalid(&both), too_long]);
    }

    /// OP-20: the same findings are warnings by default and errors under the strict option.
    #[test]
    fn doubtful_mounts_are_warnings_or_errors_op_20() {
        let consumer = json!([{"name": "A", "valueFrom": {"fileKeyRef": reference()}}]);
        let mounts = json!([{"name": "other"}, {"name": "v"}]);
        let consumed = "a container should not mount volume \"v\" and take variables from an env \
                        file in it";
        let not_init = "volume \"v\" holds an env file, so only init containers should mount it";
        check_mounts(
            json!({
                "initContainers": [{"volumeMounts": mounts}],
                "containers": [{"env": consumer, "volumeMounts": [{"name": "other"}]}],
            }),
            &[],
        );
        check_mounts(
            json!({
                "initContainers": [
                    {"volumeMounts": mounts},
                    {"env": consumer, "volumeMounts": mounts},
                ],
                "containers": [
                    {"env": consumer, "volumeMounts": mounts},
                    {"volumeMounts": mounts},
                ],
                "ephemeralContainers": [{"volumeMounts": mounts}],
            }),
            &[
                ("spec.containers[0].volumeMounts[1]", consumed),
                ("spec.containers[1].volumeMounts[1]", not_init),
                ("spec.initContainers[1].volumeMounts[1]", consumed),
                ("spec.ephemeralContainers[0].volumeMounts[1]", not_init),
            ],
        );
        check_mounts(json!({"containers": [{"volumeMounts": mounts}]}), &[]);
    }

    #[track_caller]
    fn check_mounts(mut spec: Value, expected: &[(&str, &str)]) {
        spec["volumes"] = json!([{"name": "v", "emptyDir": {}}, {"name": "other", "secret": {}}]);
        let view = PodEnvSpec::from_value(&spec).unwrap();
        let path = FieldPath::new("spec");
        let lenient = EnvRules::for_create(&FeatureGates::all_on());
        let strict = lenient
            .with_options(EnvOptions { strict_env_file_mounts: true, ..EnvOptions::default() });
        let texts = |sep: &str| -> Vec<_> {
            expected.iter().map(|(path, text)| format!("{path}: {sep}{text}")).collect()
        };
        assert_eq!(errors_under(&lenient, &spec), [""; 0]);
        assert_eq!(warnings(&view, &path, &lenient), texts(""));
        assert_eq!(errors_under(&strict, &spec), texts("Forbidden: "));
        assert_eq!(warnings(&view, &path, &strict), [""; 0]);
    }
}
