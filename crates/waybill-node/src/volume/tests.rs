//! Volumes on a real kernel; most of them need root.

mod images;
mod removal;
mod sub_paths;

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
    sync::atomic::{AtomicI64, Ordering},
};

use jiff::Timestamp;
use rustix::{
    fs::{StatVfsMountFlags, statfs, statvfs},
    mount::{UnmountFlags, unmount},
};
use serde_json::{Value, json};

use super::*;
use crate::objects::testing::{FakeObjects, node, pod};

const CANARY: &str = "hunter2";
const START: i64 = 1_700_000_000;
const TMPFS: i64 = 0x0102_1994;

/// Whether mounts can be made here.
fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        waybill_testkit::skip::skip("root", "run the tests as root");
    }
    is_root
}

/// Ends with nothing mounted, also when a test fails.
struct Fixture {
    volumes: Volumes,
    objects: Arc<FakeObjects>,
    now: Arc<AtomicI64>,
    state: tempfile::TempDir,
}

impl Fixture {
    fn new(objects: FakeObjects) -> Self {
        let state = tempfile::tempdir().unwrap();
        let directories =
            Directories { state: state.path().to_owned(), logs: state.path().join("logs") };
        let (objects, now) = (Arc::new(objects), Arc::new(AtomicI64::new(START)));
        let clock = Arc::clone(&now);
        let clock: Clock =
            Arc::new(move || Timestamp::from_second(clock.load(Ordering::Relaxed)).unwrap());
        let source = Arc::clone(&objects) as Arc<dyn ObjectSource>;
        let volumes = Volumes::new(directories, source, Arc::new(node()), clock);
        Self { volumes, objects, now, state }
    }

    fn directory(&self, kind: &str, name: &str) -> PathBuf {
        let pod = pod(json!({"containers": []}));
        self.volumes.directories.volume(pod.uid(), kind, name)
    }

    fn pod_directory(&self) -> PathBuf {
        self.state.path().join("pods/9d5e1a2c-uid")
    }

    async fn mounts(&self, pod: &Pod) -> Result<Vec<Mount>, VolumeError> {
        let container = pod.containers().next().unwrap();
        self.volumes.mounts(pod, container, &Environment::new(), &VolumeImages::new()).await
    }

    async fn refused(&self, pod: &Pod) -> String {
        self.volumes.prepare(pod).await.unwrap_err().to_string()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let state = self.state.path().canonicalize().unwrap();
        for point in mount::mounted_at_or_below(&state).unwrap() {
            let _ = unmount(&point, UnmountFlags::DETACH);
        }
    }
}

/// A pod whose one container mounts all of those volumes at their names.
fn with_volumes(volumes: Value) -> Pod {
    pod(spec(volumes))
}

fn spec(volumes: Value) -> Value {
    let mount = |volume: &Value| json!({"name": volume["name"], "mountPath": volume["name"]});
    let mounts: Vec<_> = volumes.as_array().unwrap().iter().map(mount).collect();
    let mut spec = json!({"containers": [{"name": "app", "volumeMounts": mounts}]});
    spec["volumes"] = volumes;
    spec
}

fn mode(path: impl AsRef<Path>) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn is_tmpfs(path: &Path) -> bool {
    statfs(path).unwrap().f_type == TMPFS
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap()
}

#[tokio::test]
async fn secrets_lie_on_a_tmpfs_whose_scripts_run() {
    if !is_root() {
        return;
    }
    let fixture = Fixture::new(FakeObjects::default().with_secret("db", &[("key", CANARY)]));
    let pod = with_volumes(json!([
        {"name": "s", "secret": {"secretName": "db", "defaultMode": 0o400}}]));
    fixture.volumes.prepare(&pod).await.unwrap();
    let directory = fixture.directory("secret", "s");
    assert!(is_tmpfs(&directory));
    let flags = statvfs(&directory).unwrap().f_flag;
    let wanted = StatVfsMountFlags::NOSUID | StatVfsMountFlags::NODEV;
    assert!(flags.contains(wanted) && !flags.contains(StatVfsMountFlags::NOEXEC), "{flags:?}");
    assert_eq!((mode(&directory), mode(directory.join("key"))), (0o755, 0o400));
    assert_eq!(read(directory.join("key")), CANARY);

    let mounts = fixture.mounts(&pod).await.unwrap();
    assert_eq!(mounts.len(), 1);
    assert_eq!(mounts[0].container_path, "/s");
    assert_eq!(mounts[0].host_path, directory.to_str().unwrap());
    assert!(mounts[0].readonly, "containers only read what the node writes");

    // Nothing of it is on the disk below the tmpfs.
    fixture.volumes.remove(pod.uid()).await.unwrap();
    assert!(!fixture.pod_directory().exists());
}

#[tokio::test]
async fn volumes_are_written_anew_when_their_objects_change() {
    if !is_root() {
        return;
    }
    let objects = FakeObjects::default()
        .with_secret("db", &[("key", "old")])
        .with_config_map("cm", &[("a", "1"), ("b", "2")]);
    let fixture = Fixture::new(objects);
    let pod = with_volumes(json!([
        {"name": "s", "secret": {"secretName": "db"}},
        {"name": "c", "configMap": {"name": "cm", "items": [{"key": "a", "path": "x/y"}]}},
    ]));
    fixture.volumes.refresh(&pod).await.unwrap();
    assert!(!fixture.pod_directory().exists(), "what was never made is not refreshed");
    fixture.volumes.prepare(&pod).await.unwrap();
    let (secret, config) = (fixture.directory("secret", "s"), fixture.directory("config-map", "c"));
    assert!(!is_tmpfs(&config) || is_tmpfs(fixture.state.path()));
    assert_eq!((read(secret.join("key")), read(config.join("x/y"))), ("old".into(), "1".into()));
    let links = || [&secret, &config].map(|volume| fs::read_link(volume.join("..data")).unwrap());
    let first = links();
    fixture.volumes.refresh(&pod).await.unwrap();
    assert_eq!(links(), first);
    fixture.objects.set_secret("db", &[("key", "new"), ("more", "x")]);
    fixture.volumes.prepare(&pod).await.unwrap();
    assert_eq!(read(secret.join("key")), "old", "what is there is not made again");
    fixture.volumes.refresh(&pod).await.unwrap();
    assert_eq!((read(secret.join("key")), read(secret.join("more"))), ("new".into(), "x".into()));
    assert_eq!(links()[1], first[1], "the other volume is left alone");

    // A node that was started again goes on with what it finds.
    fixture.volumes.pods.lock().unwrap().clear();
    fixture.objects.set_config_map("cm", &[("a", "3")]);
    fixture.volumes.refresh(&pod).await.unwrap();
    assert_eq!(read(config.join("x/y")), "3");
}

#[tokio::test]
async fn missing_objects_are_named_unless_optional() {
    if !is_root() {
        return;
    }
    let fixture = Fixture::new(FakeObjects::default().with_config_map("cm", &[]));
    let secret = with_volumes(json!([{"name": "s", "secret": {"secretName": "no"}}]));
    assert_eq!(
        fixture.refused(&secret).await,
        r#"MountVolume.SetUp failed for volume "s" : secret "no" not found"#
    );
    let items = json!([{"key": "k", "path": "k"}]);
    let config_map =
        with_volumes(json!([{"name": "c", "configMap": {"name": "cm", "items": items}}]));
    assert_eq!(
        fixture.refused(&config_map).await,
        "MountVolume.SetUp failed for volume \"c\" : configmap references non-existent config key: k"
    );
    let optional = with_volumes(json!([
        {"name": "s", "secret": {"secretName": "no", "optional": true}},
        {"name": "c", "configMap": {"name": "cm", "items": items, "optional": true}},
    ]));
    fixture.volumes.prepare(&optional).await.unwrap();
    assert!(fixture.directory("secret", "s").is_dir());
}

#[tokio::test]
async fn kinds_that_the_node_lacks_are_named() {
    let fixture = Fixture::new(FakeObjects::default());
    let claim = json!([{"name": "p", "persistentVolumeClaim": {"claimName": "c"}}]);
    assert_eq!(
        fixture.refused(&with_volumes(claim.clone())).await,
        "MountVolume.SetUp failed for volume \"p\" : volume kind persistentVolumeClaim is not \
         supported by this node"
    );
    let unused = pod(json!({"containers": [{"name": "app"}], "volumes": claim}));
    fixture.volumes.prepare(&unused).await.unwrap();
    for name in ["..", "a/b", "A", ""] {
        let error = fixture.refused(&with_volumes(json!([{"name": name, "emptyDir": {}}]))).await;
        assert!(error.contains("is not a good name"), "{error}");
    }
}

#[tokio::test]
async fn a_service_account_volume_works_and_its_token_is_renewed() {
    if !is_root() {
        return;
    }
    let fixture = Fixture::new(
        FakeObjects::default().with_config_map("kube-root-ca.crt", &[("ca.crt", "PEM")]),
    );
    let life = 1000;
    let set_now = |seconds: i64| {
        fixture.now.store(START + seconds, Ordering::Relaxed);
        let now = Timestamp::from_second(START + seconds).unwrap();
        *fixture.objects.tokens_from.lock().unwrap() = Some(now);
    };
    set_now(0);
    // As admission writes it.
    let volume = json!([{"name": "kube-api-access-x", "projected": {"defaultMode": 420, "sources": [
        {"serviceAccountToken": {"expirationSeconds": life, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {
            "apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
    ]}}]);
    let pod = with_volumes(volume.clone());
    fixture.volumes.prepare(&pod).await.unwrap();
    let directory = fixture.directory("projected", "kube-api-access-x");
    assert!(is_tmpfs(&directory));
    let token = || read(directory.join("token"));
    let first = token();
    assert!(first.starts_with("token-"), "{first}");
    assert_eq!(read(directory.join("ca.crt")), "PEM");
    assert_eq!(read(directory.join("namespace")), "shop");
    assert_eq!(mode(directory.join("token")), 0o644);

    set_now(799);
    fixture.volumes.refresh(&pod).await.unwrap();
    assert_eq!(token(), first);
    set_now(800);
    *fixture.objects.tokens_from.lock().unwrap() = None;
    fixture.volumes.refresh(&pod).await.unwrap();
    assert_eq!(token(), first, "an old token is good until its end");
    set_now(800);
    fixture.volumes.refresh(&pod).await.unwrap();
    assert_ne!(token(), first);
    fixture.volumes.remove(pod.uid()).await.unwrap();
    assert!(!fixture.pod_directory().exists());

    // Whoever runs as one user, and only they, may read the token.
    let mut private = spec(volume);
    private["securityContext"] = json!({"runAsUser": 1000});
    let private = crate::objects::testing::pod(private);
    fixture.volumes.prepare(&private).await.unwrap();
    let metadata = fs::metadata(directory.join("token")).unwrap();
    assert_eq!((metadata.uid(), metadata.permissions().mode() & 0o7777), (1000, 0o600));
}

#[tokio::test]
async fn downward_volumes_hold_metadata_and_resources() {
    if !is_root() {
        return;
    }
    let fixture = Fixture::new(FakeObjects::default());
    let field = |path: &str, field: &str| json!({"path": path, "fieldRef": {"fieldPath": field}});
    let items = json!([
        field("labels", "metadata.labels"),
        field("name", "metadata.name"),
        {"path": "cpu", "mode": 0o600, "resourceFieldRef": {
            "containerName": "app", "resource": "limits.cpu", "divisor": "1m"}},
    ]);
    let pod = with_volumes(json!([{"name": "d", "downwardAPI": {"items": items}}]));
    fixture.volumes.prepare(&pod).await.unwrap();
    let directory = fixture.directory("downward-api", "d");
    assert_eq!(read(directory.join("name")), "web");
    assert_eq!((read(directory.join("cpu")), mode(directory.join("cpu"))), ("2000".into(), 0o600));
    assert!(read(directory.join("labels")).starts_with("app=\"web\"\n"));
    let address = json!([{"name": "e", "downwardAPI": {"items": [field("ip", "status.podIP")]}}]);
    let error = fixture.refused(&with_volumes(address)).await;
    assert!(error.ends_with("field label not supported: status.podIP"), "{error}");
}

#[tokio::test]
async fn empty_directories_are_for_everybody_and_stay_as_they_are() {
    if !is_root() {
        return;
    }
    let fixture = Fixture::new(FakeObjects::default());
    let volumes = json!([
        {"name": "disk", "emptyDir": {}},
        {"name": "plain"},
        {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
    ]);
    let pod = with_volumes(volumes.clone());
    fixture.volumes.prepare(&pod).await.unwrap();
    let [disk, plain, memory] =
        ["disk", "plain", "memory"].map(|name| fixture.directory("empty-dir", name));
    assert_eq!([mode(&disk), mode(&plain), mode(&memory)], [0o777, 0o777, 0o1777]);
    assert!(is_tmpfs(&memory));
    let space = statvfs(&memory).unwrap();
    assert_eq!(space.f_blocks * space.f_frsize, 1 << 20);
    let mounts = fixture.mounts(&pod).await.unwrap();
    assert!(mounts.iter().all(|mount| !mount.readonly));

    // Another node process finds it and leaves it alone.
    fs::write(memory.join("file"), "x").unwrap();
    fs::set_permissions(&disk, fs::Permissions::from_mode(0o700)).unwrap();
    fixture.volumes.pods.lock().unwrap().clear();
    fixture.volumes.prepare(&pod).await.unwrap();
    assert_eq!((read(memory.join("file")), mode(&disk)), ("x".into(), 0o700));
    let table = mount::mounted_at_or_below(&memory.canonicalize().unwrap()).unwrap();
    assert_eq!(table.len(), 1, "mounted once");
}

#[tokio::test]
async fn the_group_of_the_pod_owns_its_volumes() {
    if !is_root() {
        return;
    }
    let fixture = Fixture::new(FakeObjects::default().with_secret("db", &[("key", "x")]));
    let mut spec = spec(json!([
        {"name": "disk", "emptyDir": {}},
        {"name": "memory", "emptyDir": {"medium": "Memory"}},
        {"name": "s", "secret": {"secretName": "db", "defaultMode": 0o400}},
    ]));
    spec["securityContext"] = json!({"fsGroup": 4321});
    fixture.volumes.prepare(&pod(spec)).await.unwrap();
    for (name, bits) in [("disk", 0o2777), ("memory", 0o3777)] {
        let directory = fixture.directory("empty-dir", name);
        assert_eq!((fs::metadata(&directory).unwrap().gid(), mode(&directory)), (4321, bits));
    }
    let key = fixture.directory("secret", "s").join("key");
    assert_eq!((fs::metadata(&key).unwrap().gid(), mode(&key)), (4321, 0o440));
}

/// D9: what a Secret or a token holds is in no error and on no disk.
#[tokio::test]
async fn secret_content_is_never_shown_and_never_on_disk() {
    if !is_root() {
        return;
    }
    let fixture = Fixture::new(FakeObjects::default().with_secret("db", &[("key", CANARY)]));
    let pod = with_volumes(json!([
        {"name": "s", "secret": {"secretName": "db"}},
        {"name": "p", "projected": {"sources": [{"secret": {"name": "db"}}]}},
    ]));
    fixture.volumes.prepare(&pod).await.unwrap();
    // The file system below all mounts.
    let below = tempfile::tempdir().unwrap();
    rustix::mount::mount_bind(fixture.state.path(), below.path()).unwrap();
    let found = files_below(below.path());
    unmount(below.path(), UnmountFlags::empty()).unwrap();
    assert_eq!(found, BTreeMap::new());

    for bad in [
        json!({"secretName": "db", "items": [{"key": "key", "path": "../x"}]}),
        json!({"secretName": "db", "items": [{"key": "key", "path": "x", "mode": 4096}]}),
        json!({"secretName": "db", "items": [{"key": "none", "path": "x"}]}),
        json!({"secretName": "db", "items": [
            {"key": "key", "path": "x"}, {"key": "key", "path": "x/y"}]}),
    ] {
        let pod = with_volumes(json!([{"name": "bad", "secret": bad}]));
        let error = fixture.volumes.prepare(&pod).await.unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains(CANARY), "{shown}");
    }
}

fn files_below(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut found, mut left) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(next) = left.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                left.push(entry.path());
            } else {
                found.insert(entry.path(), fs::read(entry.path()).unwrap_or_default());
            }
        }
    }
    found
}
