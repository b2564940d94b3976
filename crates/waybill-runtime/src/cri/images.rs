//! CRI's image service, and ours beside it for archives.

use std::{
    io::{self, Write},
    pin::Pin,
    sync::Arc,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures_util::{Stream, stream};
use tokio::sync::mpsc;
use tokio_util::io::{StreamReader, SyncIoBridge};
use tonic::{Request, Response, Status, Streaming};
use waybill_core::secret::SecretBytes;
use waybill_proto::{
    cri::{
        AuthConfig, FilesystemIdentifier, FilesystemUsage, Image, ImageFsInfoRequest,
        ImageFsInfoResponse, ImageSpec, ImageStatusRequest, ImageStatusResponse, Int64Value,
        ListImagesRequest, ListImagesResponse, PullImageRequest, PullImageResponse,
        RemoveImageRequest, RemoveImageResponse, StreamImagesRequest, StreamImagesResponse,
        UInt64Value, image_service_server::ImageService,
    },
    runtime::{
        ExportRequest, ExportResponse, ImportRequest, ImportResponse, ImportedImage,
        images_server::Images as ArchiveApi,
    },
};

use super::{
    Cri,
    error::{CriError, Result},
};
use crate::image::{Auth, Image as Stored, ImageError};

/// How many images one message of a streamed list holds.
const LIST_CHUNK: usize = 100;
/// Pieces of an archive on their way to a client.
const EXPORT_CHUNK: usize = 256 << 10;
const EXPORT_QUEUE: usize = 8;

type BoxStream<T> = Pin<Box<dyn Stream<Item = std::result::Result<T, Status>> + Send>>;

pub(crate) struct ImagesOfCri(pub(crate) Arc<Cri>);

#[tonic::async_trait]
impl ImageService for ImagesOfCri {
    type StreamImagesStream = BoxStream<StreamImagesResponse>;

    async fn list_images(
        &self,
        request: Request<ListImagesRequest>,
    ) -> std::result::Result<Response<ListImagesResponse>, Status> {
        let filter = request.into_inner().filter.and_then(|filter| filter.image);
        Ok(Response::new(ListImagesResponse { images: self.0.list_images(filter.as_ref()) }))
    }

    async fn stream_images(
        &self,
        request: Request<StreamImagesRequest>,
    ) -> std::result::Result<Response<Self::StreamImagesStream>, Status> {
        let filter = request.into_inner().filter.and_then(|filter| filter.image);
        let images = self.0.list_images(filter.as_ref());
        let chunks: Vec<_> = images
            .chunks(LIST_CHUNK)
            .map(|images| Ok(StreamImagesResponse { images: images.to_vec() }))
            .collect();
        Ok(Response::new(Box::pin(stream::iter(chunks))))
    }

    async fn image_status(
        &self,
        request: Request<ImageStatusRequest>,
    ) -> std::result::Result<Response<ImageStatusResponse>, Status> {
        let request = request.into_inner();
        let name = image_name(request.image)?;
        let response = match self.0.images.resolve(&name) {
            Err(ImageError::NotFound(_)) => ImageStatusResponse::default(),
            Err(error) => return Err(CriError::from(error).into()),
            Ok(image) => {
                let info = request.verbose.then(|| ("info".to_owned(), info(&image)));
                ImageStatusResponse { image: Some(shown(&image)), info: info.into_iter().collect() }
            }
        };
        Ok(Response::new(response))
    }

    async fn pull_image(
        &self,
        request: Request<PullImageRequest>,
    ) -> std::result::Result<Response<PullImageResponse>, Status> {
        let PullImageRequest { image, auth, .. } = request.into_inner();
        let name = image_name(image)?;
        let auth = auth.map(parse_auth).transpose()?.flatten();
        let cri = Arc::clone(&self.0);
        let image =
            self.0.complete(async move { Ok(cri.images.pull(&name, auth.as_ref()).await?) });
        Ok(Response::new(PullImageResponse { image_ref: image.await?.id.to_string() }))
    }

    async fn remove_image(
        &self,
        request: Request<RemoveImageRequest>,
    ) -> std::result::Result<Response<RemoveImageResponse>, Status> {
        let name = image_name(request.into_inner().image)?;
        let cri = Arc::clone(&self.0);
        // By id, so that all its names go.
        let remove = move || match cri.images.resolve(&name) {
            Err(ImageError::NotFound(_)) => Ok(()),
            Err(error) => Err(error.into()),
            Ok(image) => Ok(cri.images.remove(&image.id.to_string())?),
        };
        self.0.blocking(remove).await?;
        Ok(Response::new(RemoveImageResponse {}))
    }

    async fn image_fs_info(
        &self,
        _: Request<ImageFsInfoRequest>,
    ) -> std::result::Result<Response<ImageFsInfoResponse>, Status> {
        let cri = Arc::clone(&self.0);
        let usage = self.0.blocking(move || Ok(cri.images.usage()?)).await?;
        let usage = FilesystemUsage {
            timestamp: self.0.now(),
            fs_id: Some(FilesystemIdentifier { mountpoint: usage.path.display().to_string() }),
            used_bytes: Some(UInt64Value { value: usage.bytes }),
            inodes_used: Some(UInt64Value { value: usage.inodes }),
        };
        // Containers write to the same file system.
        Ok(Response::new(ImageFsInfoResponse {
            image_filesystems: vec![usage.clone()],
            container_filesystems: vec![usage],
        }))
    }
}

impl Cri {
    fn list_images(&self, filter: Option<&ImageSpec>) -> Vec<Image> {
        match filter.map(|spec| spec.image.as_str()) {
            None | Some("") => self.images.list().iter().map(shown).collect(),
            Some(name) => self.images.find(name).iter().map(shown).collect(),
        }
    }
}

pub(crate) struct Archives(pub(crate) Arc<Cri>);

#[tonic::async_trait]
impl ArchiveApi for Archives {
    type ExportStream = BoxStream<ExportResponse>;

    async fn import(
        &self,
        request: Request<Streaming<ImportRequest>>,
    ) -> std::result::Result<Response<ImportResponse>, Status> {
        let mut messages = request.into_inner();
        let first = messages.message().await?.unwrap_or_default();
        let name = (!first.name.is_empty()).then_some(first.name);
        let start = stream::iter([Ok(bytes::Bytes::from(first.data))]);
        let rest = stream::unfold(messages, |mut messages| async {
            let piece = match messages.message().await {
                Ok(message) => Ok(bytes::Bytes::from(message?.data)),
                Err(status) => Err(io::Error::other(status)),
            };
            Some((piece, messages))
        });
        let pieces = futures_util::StreamExt::chain(start, Box::pin(rest));
        let reader = SyncIoBridge::new(StreamReader::new(pieces));
        let cri = Arc::clone(&self.0);
        let images =
            self.0.blocking(move || Ok(cri.images.import(reader, name.as_deref())?)).await?;
        let imported = |image: &Stored| ImportedImage {
            id: image.id.to_string(),
            names: image.tags.clone(),
            size: image.size,
        };
        Ok(Response::new(ImportResponse { images: images.iter().map(imported).collect() }))
    }

    async fn export(
        &self,
        request: Request<ExportRequest>,
    ) -> std::result::Result<Response<Self::ExportStream>, Status> {
        let name = request.into_inner().image;
        self.0.images.resolve(&name).map_err(CriError::from)?;
        let (sender, receiver) = mpsc::channel(EXPORT_QUEUE);
        let cri = Arc::clone(&self.0);
        self.0.tasks.spawn_blocking(move || {
            let pieces = Pieces(sender.clone());
            let mut writer = io::BufWriter::with_capacity(EXPORT_CHUNK, pieces);
            let exported = cri.images.export(&[name], &mut writer).map_err(CriError::from);
            let flushed =
                exported.and_then(|()| writer.flush().map_err(CriError::io("send", "an archive")));
            if let Err(error) = flushed {
                // A client that is gone does not want to know.
                let _ = sender.blocking_send(Err(error.into()));
            }
        });
        let pieces = stream::unfold(receiver, |mut receiver| async {
            receiver.recv().await.map(|piece| (piece, receiver))
        });
        Ok(Response::new(Box::pin(pieces)))
    }
}

/// Writes pieces of an archive to a client, as fast as it reads them.
struct Pieces(mpsc::Sender<std::result::Result<ExportResponse, Status>>);

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = ExportResponse { data: bytes.to_vec() };
        self.0.blocking_send(Ok(piece)).map_err(|_| io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn image_name(spec: Option<ImageSpec>) -> Result<String> {
    match spec {
        Some(spec) if !spec.image.is_empty() => Ok(spec.image),
        _ => Err(CriError::invalid("image.image is empty")),
    }
}

/// A registry gets a token, or name and password, which `auth` may hold together in base64.
fn parse_auth(auth: AuthConfig) -> Result<Option<Auth>> {
    if !auth.identity_token.is_empty() {
        let advice = "exchange it for a registry token, or give name and password";
        return Err(CriError::unsupported("an identity token", advice));
    }
    if !auth.registry_token.is_empty() {
        return Ok(Some(Auth::Token(auth.registry_token.into_bytes().into())));
    }
    if !auth.username.is_empty() || !auth.password.is_empty() {
        let password = auth.password.into_bytes().into();
        return Ok(Some(Auth::Basic { username: auth.username, password }));
    }
    if auth.auth.is_empty() {
        return Ok(None);
    }
    let wrong = || CriError::invalid("auth.auth is not base64 of `name:password`");
    let encoded = SecretBytes::from(auth.auth.into_bytes());
    let decoded = STANDARD.decode(encoded.expose()).map(SecretBytes::from).map_err(|_| wrong())?;
    let both = decoded.expose();
    let colon = both.iter().position(|byte| *byte == b':').ok_or_else(wrong)?;
    let (username, password) = both.split_at_checked(colon).ok_or_else(wrong)?;
    let username = String::from_utf8(username.to_vec()).map_err(|_| wrong())?;
    // Some clients pad with NUL.
    let password = password.get(1..).unwrap_or_default();
    let end = password.iter().rposition(|byte| *byte != 0).map_or(0, |last| last.saturating_add(1));
    let password = SecretBytes::copy_of(password.get(..end).unwrap_or_default());
    Ok(Some(Auth::Basic { username, password }))
}

fn shown(image: &Stored) -> Image {
    let user = image.config.config().as_ref().and_then(|config| config.user().clone());
    let user = user.unwrap_or_default();
    let user = user.split(':').next().unwrap_or_default();
    let uid = if user.is_empty() { None } else { user.parse().ok() };
    Image {
        id: image.id.to_string(),
        repo_tags: image.tags.clone(),
        repo_digests: image.digests.clone(),
        size: image.size,
        uid: uid.map(|value| Int64Value { value }),
        username: if uid.is_some() { String::new() } else { user.to_owned() },
        spec: Some(ImageSpec { image: image.id.to_string(), ..ImageSpec::default() }),
        pinned: image.pinned,
    }
}

/// The configuration of the image; its variables are public, since they come with it.
fn info(image: &Stored) -> String {
    serde_json::json!({ "imageSpec": *image.config }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn basic(auth: AuthConfig) -> Option<(String, Vec<u8>)> {
        match parse_auth(auth).unwrap() {
            Some(Auth::Basic { username, password }) => {
                Some((username, password.expose().to_vec()))
            }
            _ => None,
        }
    }

    #[test]
    fn credentials_come_in_several_forms() {
        let named =
            AuthConfig { username: "u".into(), password: "p".into(), ..AuthConfig::default() };
        assert_eq!(basic(named), Some(("u".into(), b"p".to_vec())));
        let packed = AuthConfig { auth: STANDARD.encode("u:p:q\0\0"), ..AuthConfig::default() };
        assert_eq!(basic(packed), Some(("u".into(), b"p:q".to_vec())));
        let token = AuthConfig { registry_token: "t".into(), ..AuthConfig::default() };
        assert!(matches!(parse_auth(token).unwrap(), Some(Auth::Token(_))));
        assert!(parse_auth(AuthConfig::default()).unwrap().is_none());
    }

    #[test]
    fn broken_credentials_are_refused_without_being_shown() {
        for auth in ["***", "aHVudGVyMg=="] {
            let config = AuthConfig { auth: auth.into(), ..AuthConfig::default() };
            let Err(error) = parse_auth(config) else { panic!("{auth}") };
            assert_eq!(error.to_string(), "auth.auth is not base64 of `name:password`");
        }
        let identity = AuthConfig { identity_token: "hunter2".into(), ..AuthConfig::default() };
        let Err(error) = parse_auth(identity) else { panic!("an identity token passed") };
        assert!(!error.to_string().contains("hunter2"));
    }
}
