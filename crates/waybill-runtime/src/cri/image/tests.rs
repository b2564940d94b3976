//! Both services over a real connection.

use std::sync::Arc;

use futures_util::stream;
use tokio::net::UnixListener;
use tonic::{
    Code,
    transport::{Channel, Endpoint, Server},
};
use waybill_proto::{
    cri::image_service_client::ImageServiceClient,
    runtime::{
        ExportRequest, ImportRequest, images_client::ImagesClient, images_server::ImagesServer,
    },
};

use super::{super::image_transfer::ImageTransfer, *};
use crate::image::build::ImageBuilder;

/// A server for images alone, on a socket in a directory of its own.
struct Fixture {
    directory: tempfile::TempDir,
    images: Images,
    server: tokio::task::JoinHandle<()>,
}

impl Fixture {
    #[expect(clippy::disallowed_methods, reason = "it ends with the runtime of the test")]
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let images = Images::open(&directory.path().join("state")).unwrap();
        let listener = UnixListener::bind(directory.path().join("socket")).unwrap();
        let tasks = TaskTracker::new();
        let service = ImageService::new(images.clone(), Arc::new(|| 7), tasks.clone());
        let router = Server::builder()
            .add_service(image_service_server::ImageServiceServer::new(service))
            .add_service(ImagesServer::new(ImageTransfer::new(images.clone(), tasks)));
        let incoming = stream::unfold(listener, async |listener| {
            Some((listener.accept().await.map(|(connection, _)| connection), listener))
        });
        let server = tokio::spawn(async move {
            router.serve_with_incoming(Box::pin(incoming)).await.unwrap();
        });
        Self { directory, images, server }
    }

    async fn channel(&self) -> Channel {
        let path = self.directory.path().join("socket");
        Endpoint::from_shared(format!("unix://{}", path.display()))
            .unwrap()
            .connect()
            .await
            .unwrap()
    }

    async fn import(&self, archive: &[u8], name: &str) -> Result<Vec<String>, Status> {
        let mut pieces: Vec<_> = archive
            .chunks(1000)
            .map(|piece| ImportRequest { data: piece.to_vec(), ..ImportRequest::default() })
            .collect();
        pieces[0].name = name.into();
        let mut client = ImagesClient::new(self.channel().await);
        let imported = client.import(stream::iter(pieces)).await?.into_inner();
        Ok(imported.images.into_iter().flat_map(|image| image.names).collect())
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("SKIPPED: only root may unpack layers");
    }
    root
}

fn archive(name: &str) -> Vec<u8> {
    let builder = ImageBuilder::new().file("/bin/tool", 0o755, vec![7; 300_000]);
    let builder = builder.user("12:34").variable("SECRET", "hunter2").variable("PATH", "/bin");
    builder.archive(name).unwrap()
}

fn spec(image: &str) -> Option<ImageSpec> {
    Some(ImageSpec { image: image.into(), ..ImageSpec::default() })
}

#[tokio::test]
async fn an_image_goes_in_is_seen_and_goes_away() {
    if !is_root() {
        return;
    }
    let fixture = Fixture::start();
    let names = fixture.import(&archive("tool:1"), "").await.unwrap();
    assert_eq!(names, ["docker.io/library/tool:1"]);
    let names = fixture.import(&archive("tool:1"), "other").await.unwrap();
    assert_eq!(names, ["docker.io/library/other:latest", "docker.io/library/tool:1"]);
    let mut client = ImageServiceClient::new(fixture.channel().await);
    let list = client.list_images(ListImagesRequest::default()).await.unwrap().into_inner();
    let [image] = list.images.as_slice() else { panic!("{list:?}") };
    assert_eq!((image.uid.unwrap().value, image.username.as_str()), (12, ""));
    assert!(image.size > 300_000);
    let filter = |image| Some(cri::ImageFilter { image: spec(image) });
    let filtered = client.list_images(ListImagesRequest { filter: filter("nothing") }).await;
    assert_eq!(filtered.unwrap().into_inner().images, []);
    let mut streamed = client
        .stream_images(StreamImagesRequest { filter: filter("other") })
        .await
        .unwrap()
        .into_inner();
    assert_eq!(streamed.message().await.unwrap().unwrap().images, list.images);
    let request = ImageStatusRequest { image: spec("tool:1"), verbose: true };
    let status = client.image_status(request).await.unwrap().into_inner();
    assert_eq!(status.image.as_ref(), Some(image));
    let info = &status.info["info"];
    assert!(info.contains("SECRET") && !info.contains("hunter2"), "{info}");
    let usage = client.image_fs_info(ImageFsInfoRequest {}).await.unwrap().into_inner();
    assert_eq!(usage.image_filesystems[0].timestamp, 7);
    assert!(usage.image_filesystems[0].used_bytes.unwrap().value > 600_000);
    for _ in 0..2 {
        client.remove_image(RemoveImageRequest { image: spec("other") }).await.unwrap();
    }
    assert!(fixture.images.list().is_empty());
    let request = ImageStatusRequest { image: spec("tool:1"), verbose: false };
    assert_eq!(client.image_status(request).await.unwrap().into_inner().image, None);
}

#[tokio::test]
async fn an_exported_image_is_the_same_elsewhere() {
    if !is_root() {
        return;
    }
    let (fixture, other) = (Fixture::start(), Fixture::start());
    fixture.import(&archive("tool:1"), "").await.unwrap();
    let mut client = ImagesClient::new(fixture.channel().await);
    let mut pieces =
        client.export(ExportRequest { image: "tool:1".into() }).await.unwrap().into_inner();
    let mut exported = Vec::new();
    while let Some(piece) = pieces.message().await.unwrap() {
        assert!(piece.data.len() <= 256 << 10);
        exported.extend(piece.data);
    }
    other.import(&exported, "").await.unwrap();
    assert_eq!(other.images.list()[0].id, fixture.images.list()[0].id);
    let missing = client.export(ExportRequest { image: "none".into() }).await.unwrap_err();
    assert_eq!((missing.code(), missing.message()), (Code::NotFound, "there is no image `none`"));
}

#[tokio::test]
async fn what_is_wrong_is_told_apart() {
    if !is_root() {
        return;
    }
    let fixture = Fixture::start();
    let status = fixture.import(&[b'x'; 5000], "").await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("no tar archive"), "{status}");
    let cut = &archive("tool")[..200_000];
    let status = fixture.import(cut, "").await.unwrap_err();
    assert!(status.message().contains("middle of a file"), "{status}");
    assert!(fixture.images.list().is_empty());
    let mut client = ImageServiceClient::new(fixture.channel().await);
    let check = |result: Result<(), Status>, code, text: &str| {
        let status = result.unwrap_err();
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().contains(text), "{status}");
    };
    let request = ImageStatusRequest { image: spec("Upper"), verbose: false };
    let answer = client.image_status(request).await.map(drop);
    check(answer, Code::InvalidArgument, "does not name an image");
    let answer = client.image_status(ImageStatusRequest::default()).await.map(drop);
    check(answer, Code::InvalidArgument, "names no image");
    let auth = AuthConfig { identity_token: "hunter2".into(), ..AuthConfig::default() };
    let request =
        PullImageRequest { image: spec("localhost:1/a"), auth: Some(auth), ..Default::default() };
    check(client.pull_image(request).await.map(drop), Code::Unimplemented, "identity tokens");
    let request = PullImageRequest { image: spec("localhost:1/a"), ..Default::default() };
    check(
        client.pull_image(request).await.map(drop),
        Code::Unavailable,
        "cannot pull localhost:1/a",
    );
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "it ends with the runtime of the test")]
async fn half_an_archive_is_not_taken_for_a_whole_one() {
    if !is_root() {
        return;
    }
    let fixture = Fixture::start();
    let mut client = ImagesClient::new(fixture.channel().await);
    // A client that vanishes in the middle.
    let archive = archive("tool");
    let piece = ImportRequest { data: archive[..100_000].to_vec(), ..ImportRequest::default() };
    let (gone, vanish) = tokio::sync::oneshot::channel::<()>();
    let pieces = stream::once(async { piece }).chain(stream::once(async {
        let _ = vanish.await;
        ImportRequest::default()
    }));
    let call = tokio::spawn(async move { client.import(pieces).await.map(drop) });
    while std::fs::read_dir(fixture.directory.path().join("state/images/tmp")).unwrap().count() == 0
    {
        tokio::task::yield_now().await;
    }
    call.abort();
    let _ = call.await;
    drop(gone);
    // Its files are removed when the server notices.
    while std::fs::read_dir(fixture.directory.path().join("state/images/tmp")).unwrap().count() > 0
    {
        tokio::task::yield_now().await;
    }
    assert!(fixture.images.list().is_empty());
}

#[test]
fn credentials_are_for_their_registry_only() {
    let auth = |auth: AuthConfig, name| to_auth(auth, name).map_err(|status| status.code());
    let basic = AuthConfig { username: "me".into(), password: "p".into(), ..AuthConfig::default() };
    for (address, fits) in [
        ("", true),
        ("example.com", true),
        ("https://example.com/v2/", true),
        ("https://example.org", false),
        ("example.com:5000", false),
    ] {
        let auth =
            auth(AuthConfig { server_address: address.into(), ..basic.clone() }, "example.com/a");
        assert_eq!(auth.unwrap().is_some(), fits, "{address}");
    }
    let docker = AuthConfig { server_address: "https://index.docker.io/v1/".into(), ..basic };
    assert!(auth(docker, "busybox").unwrap().is_some());
    let encoded = |text: &str| AuthConfig { auth: STANDARD.encode(text), ..AuthConfig::default() };
    let Ok(Some(Auth::Basic { username, password })) = auth(encoded("me:a:b\0"), "a") else {
        panic!("no credentials")
    };
    assert_eq!((username.as_str(), password.expose()), ("me", &b"a:b"[..]));
    assert!(auth(encoded("no colon"), "a").is_err());
    let bad = AuthConfig { auth: "%".into(), ..AuthConfig::default() };
    assert_eq!(auth(bad, "a").err(), Some(Code::InvalidArgument));
    assert!(auth(AuthConfig::default(), "a").unwrap().is_none());
}
