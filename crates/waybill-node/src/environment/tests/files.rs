//! Variables from env files.

use super::*;

/// FILE-11, FILE-12, FILE-13, FILE-14, FILE-22, FILE-33, FILE-34
#[test]
fn keys_of_env_files_become_variables_file_11() {
    // No API server is needed.
    let fixture = Fixture::new(NoObjects);
    let container = json!({"env": [
        {"name": "TOKEN", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "d/app.env", "key": "A"}}},
        {"name": "EMPTY", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "d/app.env", "key": "E"}}},
        {"name": "COPY", "value": "<$(TOKEN)>"},
    ]});
    fixture.write("d/app.env", "A='first'\nUNUSED='x'\nE=''\nA='$(X) last'\n");
    fixture.check(container.clone(), &["TOKEN=$(X) last", "EMPTY=", "COPY=<$(X) last>"]);
    fixture.write("d/app.env", "A='second'\nE=''\n");
    fixture.check(container, &["TOKEN=second", "EMPTY=", "COPY=<second>"]);
}

/// FILE-15, FILE-16, FILE-17, FILE-18, FILE-19, FILE-20
#[test]
fn env_files_that_are_missing_or_bad_stop_the_container_file_15() {
    let fixture = Fixture::new(NoObjects);
    let of = r#"(variable "A" of container "app")"#;
    fixture.check_refused(
        file_key("v", "a.env", "K", false),
        &format!(r#"cannot find the volume "v" referenced by FileKeyRef {of}"#),
    );
    fixture.write("a.env", "K='v'\n");
    fixture.check(file_key("v", "a.env", "K", false), &["A=v"]);
    fixture.check(file_key("v", "./a.env", "K", false), &["A=v"]);
    fixture.check_refused(
        file_key("v", "b.env", "K", false),
        &format!(r#"env file "b.env" not found in volume "v" {of}"#),
    );
    fixture.check_refused(
        file_key("v", "a.env", "Z", false),
        &format!(r#"environment variable key "Z" not found in file "a.env" of volume "v" {of}"#),
    );
    fixture.check(file_key("v", "b.env", "K", true), &[]);
    fixture.check(file_key("v", "a.env/below", "K", true), &[]);
    fixture.check(file_key("v", "a.env", "Z", true), &[]);
    for volume in ["gone", ""] {
        fixture.check_refused(
            file_key(volume, "a.env", "K", true),
            &format!("cannot find the volume {volume:?} referenced by FileKeyRef {of}"),
        );
    }
    fixture.check_refused(
        file_key("s", "a.env", "K", true),
        &format!(r#"the volume "s" referenced by FileKeyRef must be of type emptyDir {of}"#),
    );
    // The fault lies after the wanted key, and the key is optional.
    fixture.write("a.env", "K='v'\nL=hunter2\n");
    fixture.check_refused(
        file_key("v", "a.env", "K", true),
        &format!(
            "couldn't parse env file \"a.env\" in volume \"v\": line 2, column 3: a value must be \
             enclosed in single quotes {of}"
        ),
    );
    fixture.write("a.env", "K='v'\nB;D='x'\n");
    let error = block_on(fixture.resolve(file_key("v", "a.env", "K", true))).unwrap_err();
    assert!(error.to_string().contains("line 2"), "{error}");
    for path in ["/etc/passwd", "../x", "a/../b", "..x", ""] {
        fixture.check_refused(
            file_key("v", path, "K", true),
            &format!(
                "fileKeyRef path {path:?} must be a relative path that does not contain '..' {of}"
            ),
        );
    }
}

/// FILE-25: not set at all, rather than empty.
#[test]
fn with_the_gate_off_file_variables_are_skipped_file_25() {
    let mut fixture = Fixture::new(NoObjects);
    fixture.resolver.gates = FeatureGates::new(KubeVersion::parse("1.34").unwrap());
    fixture.check(file_key("gone", "/x", "K", false), &[]);
}
