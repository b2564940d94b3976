//! Pulls from a real registry, and from one that lies.

mod fake;
mod real;

use std::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};

use serde_json::json;

use self::fake::Fake;
use super::*;
use crate::image::{
    Images,
    testing::{Sample, Tarball, gzip, is_root},
};

fn store() -> (tempfile::TempDir, Images) {
    let state = tempfile::tempdir().unwrap();
    let images = Images::open(state.path()).unwrap();
    (state, images)
}

fn sample(note: &str) -> Sample {
    let base = gzip(&Tarball::new().file("base", b"base").finish());
    let own = Tarball::new().file(note, note.as_bytes()).finish();
    Sample::new(note, &[base, own])
}

fn password(text: &str) -> Auth {
    Auth::Basic { username: "me".into(), password: SecretBytes::copy_of(text.as_bytes()) }
}

#[test]
fn only_this_machine_is_asked_in_plain_http() {
    for near in ["localhost", "localhost:5000", "127.0.0.1:5000", "127.9.9.9", "[::1]:5000"] {
        assert!(is_loopback(near), "{near}");
    }
    for far in ["docker.io", "10.0.0.1:5000", "localhost.example.com", "[fd00::1]", "127.0.0.1.x:1"]
    {
        assert!(!is_loopback(far), "{far}");
    }
}

#[tokio::test]
async fn a_token_is_fetched_with_the_password_and_used() {
    if !is_root() {
        return;
    }
    let sample = sample("a");
    let registry = Fake::start().with_tokens("hunter2").image("app", "1", &sample);
    let (_state, images) = store();
    let name = format!("{}/app:1", registry.address());
    let image = images.pull(&name, Some(&password("hunter2"))).await.unwrap();
    assert_eq!(image.id, sample.id());
    let error = images.pull(&name, Some(&password("wrong one"))).await.unwrap_err().to_string();
    assert!(error.contains("does not accept the credentials"), "{error}");
    assert!(!error.contains("wrong one"), "{error}");
    let error = images.pull(&name, None).await.unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot pull {name} from {}: ", registry.address())));
}

#[tokio::test]
async fn many_pulls_of_an_image_fetch_it_once() {
    if !is_root() {
        return;
    }
    let sample = sample("a");
    let registry = Fake::start().image("app", "1", &sample).image("copy", "1", &sample);
    let (_state, images) = store();
    let pulls = ["app:1", "copy:1", "app:1", "app:1"].map(|name| {
        let (images, name) = (images.clone(), format!("{}/{name}", registry.address()));
        async move { images.pull(&name, None).await.unwrap() }
    });
    for image in futures_util::future::join_all(pulls).await {
        assert_eq!(image.id, sample.id());
    }
    assert_eq!(images.list().len(), 1);
    assert_eq!(images.list()[0].tags.len(), 2);
    let fetched = registry.requests().into_iter().filter(|path| path.contains("/blobs/")).count();
    assert_eq!(fetched, 3);
}

/// Upstream's benchmark of images found it: a pull that was done failed because somebody removed the image at that moment.
#[tokio::test]
async fn a_pull_succeeds_whoever_removes_the_image_meanwhile() {
    if !is_root() {
        return;
    }
    let sample = sample("a");
    let registry = Fake::start().image("app", "1", &sample);
    let (_state, images) = store();
    let name = format!("{}/app:1", registry.address());
    let is_done = Arc::new(AtomicBool::new(false));
    let remover = {
        let (images, name, is_done) = (images.clone(), name.clone(), Arc::clone(&is_done));
        std::thread::spawn(move || {
            let mut removed = 0;
            while !is_done.load(Ordering::Relaxed) {
                removed += usize::from(images.remove(&name).is_ok());
            }
            removed
        })
    };
    for _ in 0..12 {
        assert_eq!(images.pull(&name, None).await.unwrap().id, sample.id());
    }
    is_done.store(true, Ordering::Relaxed);
    assert!(remover.join().unwrap() > 0, "nobody was in the way");
}

#[tokio::test]
async fn a_pull_tells_how_far_it_is() {
    if !is_root() {
        return;
    }
    let sample = sample("a");
    let registry = Fake::start().image("app", "1", &sample);
    let (_state, images) = store();
    let seen = Mutex::new(Vec::new());
    let name = format!("{}/app:1", registry.address());
    let watch = |progress| seen.lock().unwrap().push(progress);
    images.pull_watched(&name, None, watch).await.unwrap();
    let seen = seen.into_inner().unwrap();
    for layer in &sample.layers {
        let (blob, total) = (Digest::of(layer), layer.len() as u64);
        assert!(seen.contains(&Progress { blob, received: total, total }), "{seen:?}");
    }
}

/// What a registry may say that is not so.
#[tokio::test]
async fn nothing_false_gets_into_the_store() {
    if !is_root() {
        return;
    }
    let sample = sample("a");
    let layer = Digest::of(&sample.layers[0]);
    let blob = format!("/v2/app/blobs/{layer}");
    let manifest = format!("/v2/app/manifests/{}", Digest::of(&sample.manifest));
    let honest = || Fake::start().image("app", "1", &sample);
    let longer = [&sample.layers[0][..], b"x"].concat();
    let mut changed = sample.layers[0].clone();
    changed[30] ^= 1;
    check(honest().answer(&blob, &changed), "app:1", "Digest").await;
    check(honest().answer(&blob, &longer), "app:1", "bytes and not").await;
    check(honest().answer(&blob, &sample.layers[0][1..]), "app:1", "bytes and not").await;
    check(honest().fail(&blob, 404, "{}"), "app:1", "404").await;
    check(honest().fail(&blob, 500, "on\nfire"), "app:1", "HTTP 500: on fire").await;
    check(
        honest().answer(&manifest, b"{}"),
        &format!("app@{}", Digest::of(&sample.manifest)),
        "igest",
    )
    .await;
    check(honest().answer("/v2/app/manifests/1", b"<html>"), "app:1", "malformed").await;
    let huge = vec![b' '; 5 << 20];
    check(honest().answer("/v2/app/manifests/1", &huge), "app:1", "more than").await;
    let artifact = String::from_utf8(sample.manifest.clone()).unwrap();
    let artifact = artifact.replace("vnd.oci.image.config.v1", "vnd.other");
    let answer = honest().answer("/v2/app/manifests/1", artifact.as_bytes());
    check(answer, "app:1", "not a container image").await;
    let other = sample.descriptor(None, Some("linux/mips"));
    let index = json!({ "schemaVersion": 2, "manifests": [other] }).to_string();
    let answer = honest().answer("/v2/app/manifests/1", index.as_bytes());
    check(answer, "app:1", "there are: linux/mips").await;
    check(honest(), "other:1", "ManifestUnknown no such thing").await;
}

async fn check(registry: Fake, name: &str, expected: &str) {
    let (state, images) = store();
    let name = format!("{}/{name}", registry.address());
    let error = images.pull(&name, None).await.unwrap_err();
    let text = format!("{} ({error:?})", waybill_core::chain::Chain(&error));
    assert!(text.contains(expected), "{text}");
    images.0.collect().unwrap();
    for directory in ["blobs/sha256", "layers", "tmp"] {
        let path = state.path().join("images").join(directory);
        assert_eq!(fs::read_dir(path).unwrap().count(), 0, "{directory} after {text}");
    }
}

#[tokio::test]
async fn a_registry_that_is_not_there_is_named() {
    let (_state, images) = store();
    // Bound and never listened to by anybody else.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let name = format!("{}/app:1", listener.local_addr().unwrap());
    drop(listener);
    let error = images.pull(&name, None).await.unwrap_err().to_string();
    assert!(error.contains(&name) && error.contains("refused"), "{error}");
    let error = images.pull("App", None).await.unwrap_err().to_string();
    assert!(error.contains("does not name an image"), "{error}");
}
