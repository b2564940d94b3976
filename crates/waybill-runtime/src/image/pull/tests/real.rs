//! Debian's docker-registry, started on loopback with a directory of its own.

use std::{
    env,
    net::TcpListener,
    process::{Child, Command, Stdio},
};

use super::*;

/// Stopped on drop.
struct Server {
    child: Child,
    address: String,
    _directory: tempfile::TempDir,
}

/// The password `hunter2` of the user `me`, as `htpasswd -B` writes it.
const USERS: &str = "me:$2y$05$abcdefghijklmnopqrstuuoXuKqgZXLiJqzfmMXDDhSFPIvxV7t8.";

impl Server {
    /// `None`, with a word on standard output, if this machine has no such registry.
    fn start(users: Option<&str>) -> Option<Self> {
        let Some(binary) = find() else {
            println!(
                "SKIPPED: no docker-registry found. Set WAYBILL_REGISTRY to its path, or run: \
                 cargo xtask test"
            );
            return None;
        };
        let directory = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = format!("127.0.0.1:{port}");
        let mut config = json!({
            "version": "0.1",
            "log": { "level": "error" },
            "storage": { "filesystem": { "rootdirectory": directory.path().join("storage") } },
            "http": { "addr": address },
        });
        if let Some(users) = users {
            let path = directory.path().join("htpasswd");
            fs::write(&path, users).unwrap();
            config["auth"] = json!({ "htpasswd": { "realm": "test", "path": path } });
        }
        // JSON is YAML too.
        let path = directory.path().join("config.yml");
        fs::write(&path, config.to_string()).unwrap();
        let log = fs::File::create(directory.path().join("log")).unwrap();
        let mut command = Command::new(binary);
        command.arg("serve").arg(path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().unwrap();
        Some(Self { child, address, _directory: directory })
    }

    /// Puts an image there, and returns the digest of its manifest.
    async fn push(&self, name: &str, sample: &Sample, auth: &RegistryAuth) -> Digest {
        let reference = self.reference(name);
        let client = self.client(&reference, auth).await;
        for blob in sample.layers.iter().chain([&sample.configuration]) {
            let digest = Digest::of(blob).to_string();
            client.push_blob(&reference, blob.clone(), &digest).await.unwrap();
        }
        let kind = "application/vnd.oci.image.manifest.v1+json";
        self.push_manifest(&client, &reference, &sample.manifest, kind).await;
        Digest::of(&sample.manifest)
    }

    async fn push_manifest(&self, client: &Client, name: &Reference, text: &[u8], kind: &str) {
        let kind = kind.parse().unwrap();
        client.push_manifest_raw(name, text.to_vec(), kind).await.unwrap();
    }

    /// A client that may write, as soon as the registry answers.
    async fn client(&self, reference: &Reference, auth: &RegistryAuth) -> Client {
        let protocol = ClientProtocol::Http;
        let client = Client::new(ClientConfig { protocol, ..ClientConfig::default() });
        for _ in 0..200 {
            if client.auth(reference, auth, RegistryOperation::Push).await.is_ok() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        client
    }

    fn reference(&self, name: &str) -> Reference {
        format!("{}/{name}", self.address).parse().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[expect(clippy::disallowed_methods, reason = "tests are told where the registry is")]
fn find() -> Option<PathBuf> {
    if let Some(named) = env::var_os("WAYBILL_REGISTRY") {
        return Some(named.into());
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let in_path = env::split_paths(&path).map(|folder| folder.join("docker-registry"));
    let home = PathBuf::from(env::var_os("HOME").unwrap_or_default());
    let cached = home.join(".cache/waybill/docker-registry/usr/bin/docker-registry");
    in_path.chain([cached]).find(|candidate| candidate.is_file())
}

#[tokio::test]
async fn an_image_comes_from_debians_registry() {
    let Some(server) = Server::start(None).filter(|_| is_root()) else { return };
    let (one, two) = (sample("one"), sample("two"));
    let digest = server.push("team/app:1", &one, &RegistryAuth::Anonymous).await;
    server.push("team/app:2", &two, &RegistryAuth::Anonymous).await;
    let (_state, images) = store();
    let place = format!("{}/team/app", server.address);
    let image = images.pull(&format!("{place}:1"), None).await.unwrap();
    assert_eq!(image.id, one.id());
    assert_eq!(image.tags, [format!("{place}:1")]);
    assert_eq!(image.digests, [format!("{place}@{digest}")]);
    // Again, and by digest, which adds no tag.
    images.pull(&format!("{place}:1"), None).await.unwrap();
    let image = images.pull(&format!("{place}:9@{digest}"), None).await.unwrap();
    assert_eq!(image.tags.len(), 1);
    images.pull(&format!("{place}:2"), None).await.unwrap();
    assert_eq!(images.list().len(), 2);
    let target = tempfile::tempdir().unwrap();
    images.mount(&image, "c", target.path()).unwrap();
    let content = fs::read_to_string(target.path().join("one"));
    images.unmount("c", target.path()).unwrap();
    assert_eq!(content.unwrap(), "one");
    // What came from a registry can leave in an archive, and come back.
    let mut archive = Vec::new();
    images.export(&[format!("{place}:1")], &mut archive).unwrap();
    images.remove(&image.id.to_string()).unwrap();
    images.import(archive.as_slice(), None).unwrap();
    assert_eq!(images.find(&format!("{place}@{digest}")).unwrap().id, one.id());
    let error = images.pull(&format!("{place}:3"), None).await.unwrap_err().to_string();
    assert!(error.contains("ManifestUnknown"), "{error}");
}

#[tokio::test]
async fn an_index_leads_to_this_machines_image() {
    let Some(server) = Server::start(None).filter(|_| is_root()) else { return };
    let (ours, other) = (sample("ours"), sample("other"));
    server.push("app:ours", &ours, &RegistryAuth::Anonymous).await;
    server.push("app:other", &other, &RegistryAuth::Anonymous).await;
    let here = Platform::HERE.name();
    let manifests =
        [other.descriptor(None, Some("linux/mips")), ours.descriptor(None, Some(&here))];
    let kind = "application/vnd.oci.image.index.v1+json";
    let index = json!({ "schemaVersion": 2, "mediaType": kind, "manifests": manifests });
    let index = index.to_string();
    let reference = server.reference("app:all");
    let client = server.client(&reference, &RegistryAuth::Anonymous).await;
    server.push_manifest(&client, &reference, index.as_bytes(), kind).await;
    let (_state, images) = store();
    let place = format!("{}/app", server.address);
    let image = images.pull(&format!("{place}:all"), None).await.unwrap();
    assert_eq!(image.id, ours.id());
    // Found again by the digest that a pod would name.
    let digest = format!("{place}@{}", Digest::of(index.as_bytes()));
    assert_eq!(images.find(&digest).unwrap().id, ours.id());
    assert_eq!(images.pull(&digest, None).await.unwrap().id, ours.id());
}

#[tokio::test]
async fn a_password_opens_a_closed_registry() {
    let Some(server) = Server::start(Some(USERS)).filter(|_| is_root()) else { return };
    let sample = sample("one");
    let auth = RegistryAuth::Basic("me".into(), "hunter2".into());
    server.push("app:1", &sample, &auth).await;
    let (_state, images) = store();
    let name = format!("{}/app:1", server.address);
    let image = images.pull(&name, Some(&password("hunter2"))).await.unwrap();
    assert_eq!(image.id, sample.id());
    for auth in [None, Some(password("hunter3"))] {
        let error = images.pull(&name, auth.as_ref()).await.unwrap_err().to_string();
        assert!(error.contains("wants other credentials"), "{error}");
        assert!(!error.contains("hunter"), "{error}");
    }
}
