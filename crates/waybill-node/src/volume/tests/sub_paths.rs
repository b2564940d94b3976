//! Parts of volumes.

use std::{
    os::unix::fs::symlink,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use waybill_core::env::{
    merge::{EnvVar, Tier},
    name::{EnvName, NameRules},
    origin::Origin,
    value::EnvValue,
};

use super::*;

/// A pod with one mount of the volume `v`.
fn with_mount(mount: Value, volume: Value) -> Pod {
    let mut mount = mount;
    mount["name"] = json!("v");
    mount["mountPath"] = json!("/v");
    let mut volume = volume;
    volume["name"] = json!("v");
    pod(json!({"containers": [{"name": "app", "volumeMounts": [mount]}], "volumes": [volume]}))
}

#[tokio::test]
async fn a_sub_path_is_a_mount_of_its_own() {
    if !is_root() {
        return;
    }
    let fixture = Fixture::new(FakeObjects::default().with_secret("db", &[("key", "x")]));
    let pod = with_mount(json!({"subPath": "a/b"}), json!({"emptyDir": {}}));
    fixture.volumes.prepare(&pod).await.unwrap();
    let target = fixture.pod_directory().join("volume-subpaths/v/app/0");
    // Once for each start of the container.
    for _ in 0..2 {
        let mounts = fixture.mounts(&pod).await.unwrap();
        assert_eq!(mounts[0].host_path, target.to_str().unwrap());
    }
    let inside = fixture.directory("empty-dir", "v").join("a/b");
    assert_eq!((mode(&inside), mode(inside.parent().unwrap())), (0o777, 0o777));
    fs::write(inside.join("file"), "x").unwrap();
    assert_eq!(read(target.join("file")), "x");

    // It is there until the container has it: whoever deletes the state directory must not find it.
    fixture.volumes.release(&pod, pod.container("app").unwrap()).await.unwrap();
    assert!(!target.join("file").exists());
    fixture.volumes.release(&pod, pod.container("app").unwrap()).await.unwrap();
    assert_eq!(read(inside.join("file")), "x");

    // A file is mounted on a file, over what was mounted before.
    let file = with_mount(json!({"subPath": "a/b/file"}), json!({"emptyDir": {}}));
    fixture.mounts(&file).await.unwrap();
    assert_eq!(read(&target), "x");
    let below = with_mount(json!({"subPath": "a/b/file/c"}), json!({"emptyDir": {}}));
    let error = fixture.mounts(&below).await.unwrap_err().to_string();
    assert!(
        error.starts_with("failed to prepare volumeMount \"v\" of container \"app\""),
        "{error}"
    );

    for bad in ["/etc", "a/../../b", ".."] {
        let pod = with_mount(json!({"subPath": bad}), json!({"emptyDir": {}}));
        let error = fixture.mounts(&pod).await.unwrap_err().to_string();
        assert!(error.contains("a subPath must not"), "{error}");
    }
    // Through the links of the atomic writer.
    let secret = with_mount(json!({"subPath": "key"}), json!({"secret": {"secretName": "db"}}));
    fixture.volumes.pods.lock().unwrap().clear();
    fixture.volumes.prepare(&secret).await.unwrap();
    assert!(fixture.mounts(&secret).await.unwrap()[0].readonly);
    assert_eq!(read(&target), "x");
    fixture.volumes.remove(pod.uid()).await.unwrap();
    assert!(!fixture.pod_directory().exists());
}

#[tokio::test]
async fn sub_paths_of_the_host_may_be_files_and_links_stay_inside() {
    if !is_root() {
        return;
    }
    let fixture = Fixture::new(FakeObjects::default());
    let (host, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(host.path().join("file"), "inside").unwrap();
    fs::write(outside.path().join("secret"), "outside").unwrap();
    symlink(outside.path(), host.path().join("evil")).unwrap();
    symlink("/file", host.path().join("link")).unwrap();
    let volume = json!({"hostPath": {"path": host.path(), "type": "Directory"}});
    let target = fixture.pod_directory().join("volume-subpaths/v/app/0");
    for good in ["file", "link"] {
        let pod = with_mount(json!({"subPath": good}), volume.clone());
        fixture.volumes.prepare(&pod).await.unwrap();
        fixture.mounts(&pod).await.unwrap();
        assert_eq!(read(&target), "inside");
    }
    // The link leads to a place that is not there inside, and nothing is made or mounted outside.
    for evil in ["evil", "evil/secret", "evil/new"] {
        let pod = with_mount(json!({"subPath": evil}), volume.clone());
        let said = fixture.mounts(&pod).await.unwrap_err().to_string();
        assert!(said.contains("leads to something that the volume does not have"), "{said}");
    }
    symlink("circle", host.path().join("circle")).unwrap();
    for (bad, expected) in [("circle/a", "around in a circle"), ("file/a", "not a directory")] {
        let pod = with_mount(json!({"subPath": bad}), volume.clone());
        let said = fixture.mounts(&pod).await.unwrap_err().to_string();
        assert!(
            said.contains(&format!("invalid path {bad:?}")) && said.contains(expected),
            "{said}"
        );
    }
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
}

/// A pod that swaps links into its volume while the node resolves a path in it gets nothing else mounted.
#[test]
fn links_swapped_in_meanwhile_do_not_lead_out() {
    if !is_root() {
        return;
    }
    let fixture = Fixture::new(FakeObjects::default());
    let (volume, outside) = (fixture.state.path().join("v"), tempfile::tempdir().unwrap());
    fs::create_dir_all(volume.join("dir/sub")).unwrap();
    fs::write(volume.join("dir/sub/mark"), "inside").unwrap();
    fs::create_dir(outside.path().join("sub")).unwrap();
    fs::write(outside.path().join("sub/mark"), "outside").unwrap();
    symlink(outside.path(), volume.join("evil")).unwrap();
    let target = fixture.state.path().join("target");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let (dir, evil) = (volume.join("dir"), volume.join("evil"));
            let (at, exchange) = (rustix::fs::CWD, rustix::fs::RenameFlags::EXCHANGE);
            while !stop.load(Ordering::Relaxed) {
                rustix::fs::renameat_with(at, &dir, at, &evil, exchange).unwrap();
            }
        });
        for _ in 0..200 {
            if sub_path::bind(&volume, "dir/sub", &target).is_ok() {
                assert_eq!(read(target.join("mark")), "inside");
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    let outside: Vec<_> = fs::read_dir(outside.path().join("sub")).unwrap().collect();
    assert_eq!(outside.len(), 1, "nothing was made outside");
}

fn environment<const N: usize>(variables: [(&str, EnvValue); N]) -> Environment {
    let mut environment = Environment::new();
    for (name, value) in variables {
        let name = EnvName::parse(name, NameRules::Relaxed).unwrap();
        environment.set(Tier::Baseline, EnvVar { name, value, origin: Origin::Literal });
    }
    environment
}

#[tokio::test]
async fn sub_path_expressions_need_all_their_variables() {
    if !is_root() {
        return;
    }
    let fixture = Fixture::new(FakeObjects::default());
    let pod = with_mount(json!({"subPathExpr": "$(POD)/x-$(N)"}), json!({"emptyDir": {}}));
    fixture.volumes.prepare(&pod).await.unwrap();
    let container = pod.containers().next().unwrap();
    let plain = |text: &str| EnvValue::plain(text.as_bytes()).unwrap();
    let mounts = async |environment: &Environment| {
        fixture
            .volumes
            .mounts(&pod, container, environment, &VolumeImages::new())
            .await
            .map_err(|error| error.to_string())
    };
    mounts(&environment([("POD", plain("web")), ("N", plain("1"))])).await.unwrap();
    assert!(fixture.directory("empty-dir", "v").join("web/x-1").is_dir());

    let error = mounts(&environment([("N", plain(""))])).await.unwrap_err();
    assert!(error.ends_with(": missing value for N, POD"), "{error}");
    let error =
        mounts(&environment([("POD", plain("../..")), ("N", plain("1"))])).await.unwrap_err();
    assert!(error.contains("must not contain '..'"), "{error}");

    let secret = EnvValue::secret(CANARY.into()).unwrap();
    let secret = environment([("N", plain("1")), ("POD", secret)]);
    let error = mounts(&secret).await.unwrap_err();
    assert!(error.contains("whose value is secret") && !error.contains(CANARY), "{error}");
}
