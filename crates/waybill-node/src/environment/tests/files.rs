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

/// FILE-11: one start reads a file once, however many keys are asked for, so they fit together.
#[test]
fn all_keys_of_a_start_are_of_one_version_of_the_file() {
    const KEYS: usize = 50;
    let fixture = Fixture::new(NoObjects);
    let write = |name: &str, version: &str| {
        let lines = (0..KEYS).map(|key| format!("K{key}='{version}'\n"));
        fixture.write(name, &lines.collect::<String>());
    };
    let entry = |key: usize| {
        json!({"name": format!("V{key}"), "valueFrom": {"fileKeyRef": {
            "volumeName": "v", "path": "app.env", "key": format!("K{key}")}}})
    };
    let container = json!({"env": (0..KEYS).map(entry).collect::<Vec<_>>()});
    write("app.env", "old");
    let stop = std::sync::atomic::AtomicBool::new(false);
    let uid = pod(json!({"containers": []})).uid().clone();
    let volume = fixture.resolver.directories.volume(&uid, "empty-dir", "v");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for version in ["new", "old"].into_iter().cycle() {
                write("next", version);
                std::fs::rename(volume.join("next"), volume.join("app.env")).unwrap();
                if stop.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..200 {
            let resolved = block_on(fixture.resolve(container.clone())).unwrap();
            let values: std::collections::BTreeSet<_> = pairs(&resolved)
                .iter()
                .map(|pair| pair.split_once('=').unwrap().1.to_owned())
                .collect();
            assert_eq!(values.len(), 1, "{values:?}");
            seen.extend(values);
        }
        stop.store(true, Ordering::Relaxed);
        assert!(!seen.is_empty());
    });
}

/// FILE-01, FILE-11: every kind of container, sidecars among the init containers.
#[test]
fn every_kind_of_container_may_take_variables_from_files_file_01() {
    let fixture = Fixture::new(NoObjects);
    fixture.write("a.env", "K='v'\n");
    let of = |name: &str| {
        json!({"name": name, "env": [{"name": "A", "valueFrom": {
            "fileKeyRef": {"volumeName": "v", "path": "a.env", "key": "K"}}}]})
    };
    let mut sidecar = of("side");
    sidecar["restartPolicy"] = json!("Always");
    let pod = pod(json!({
        "volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}],
        "containers": [of("app")],
        "initContainers": [of("init"), sidecar],
        "ephemeralContainers": [of("debug")],
    }));
    for name in ["app", "init", "side", "debug"] {
        let container = pod.container(name).unwrap();
        let request = Request { pod: &pod, container, pod_ips: &[] };
        let resolved = block_on(fixture.resolver.resolve(request)).unwrap();
        assert_eq!(pairs(&resolved), ["A=v"], "{name}");
    }
}
