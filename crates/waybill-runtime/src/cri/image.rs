//! CRI's `ImageService`.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use futures_util::{StreamExt, stream, stream::BoxStream};
use oci_spec::image::ImageConfiguration;
use tokio_util::task::TaskTracker;
use tonic::{Request, Response, Status};
use waybill_core::{chain::Chain, secret::SecretBytes};
use waybill_proto::cri::{
    self, AuthConfig, FilesystemIdentifier, FilesystemUsage, ImageFsInfoRequest,
    ImageFsInfoResponse, ImageSpec, ImageStatusRequest, ImageStatusResponse, Int64Value,
    ListImagesRequest, ListImagesResponse, PullImageRequest, PullImageResponse, RemoveImageRequest,
    RemoveImageResponse, StreamImagesRequest, StreamImagesResponse, UInt64Value,
    image_service_server,
};

use super::{Clock, error::CriError, tracked};
use crate::{
    blocking::{on_a_thread, on_a_thread_or_here},
    image::{Auth, Image, ImageError, ImageName, Images},
};

/// How many images go into one message of a stream.
const BATCH: usize = 100;

/// Answers for a store of images.
pub(crate) struct ImageService {
    images: Images,
    clock: Clock,
    tasks: TaskTracker,
}

impl ImageService {
    pub(crate) fn new(images: Images, clock: Clock, tasks: TaskTracker) -> Self {
        Self { images, clock, tasks }
    }

    /// All images, or the one that the filter names.
    fn list(&self, filter: Option<cri::ImageFilter>) -> Result<Vec<cri::Image>, Status> {
        self.images.check()?;
        let wanted = filter.and_then(|filter| filter.image).map(|spec| spec.image);
        let images = match wanted.filter(|wanted| !wanted.is_empty()) {
            None => self.images.list(),
            Some(wanted) => self.find(&wanted)?.into_iter().collect(),
        };
        Ok(images.iter().map(to_cri).collect())
    }

    /// What is not here is no error.
    fn find(&self, wanted: &str) -> Result<Option<Image>, Status> {
        match self.images.resolve(wanted) {
            Ok(image) => Ok(Some(image)),
            Err(ImageError::NotFound(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

#[tonic::async_trait]
impl image_service_server::ImageService for ImageService {
    type StreamImagesStream = BoxStream<'static, Result<StreamImagesResponse, Status>>;

    async fn list_images(
        &self,
        request: Request<ListImagesRequest>,
    ) -> Result<Response<ListImagesResponse>, Status> {
        let images = self.list(request.into_inner().filter)?;
        Ok(Response::new(ListImagesResponse { images }))
    }

    async fn stream_images(
        &self,
        request: Request<StreamImagesRequest>,
    ) -> Result<Response<Self::StreamImagesStream>, Status> {
        let images = self.list(request.into_inner().filter)?;
        let batches: Vec<_> = images.chunks(BATCH).map(<[_]>::to_vec).collect();
        let batches = batches.into_iter().map(|images| Ok(StreamImagesResponse { images }));
        Ok(Response::new(stream::iter(batches).boxed()))
    }

    async fn image_status(
        &self,
        request: Request<ImageStatusRequest>,
    ) -> Result<Response<ImageStatusResponse>, Status> {
        let ImageStatusRequest { image, verbose } = request.into_inner();
        let Some(image) = self.find(&named(image)?)? else {
            return Ok(Response::new(ImageStatusResponse::default()));
        };
        let info = if verbose { info(&image)? } else { BTreeMap::new() };
        Ok(Response::new(ImageStatusResponse { image: Some(to_cri(&image)), info }))
    }

    async fn pull_image(
        &self,
        request: Request<PullImageRequest>,
    ) -> Result<Response<PullImageResponse>, Status> {
        let PullImageRequest { image, auth, .. } = request.into_inner();
        let name = named(image)?;
        let auth = auth.map(|auth| to_auth(auth, &name)).transpose()?.flatten();
        let images = self.images.clone();
        // To its end, also when the client goes away: it will ask again.
        let pull = async move { images.pull(&name, auth.as_ref()).await };
        let image = self.tasks.spawn(pull).await.map_err(|_| stopping())??;
        settle(&self.images, &self.tasks);
        Ok(Response::new(PullImageResponse { image_ref: image.id.to_string() }))
    }

    async fn remove_image(
        &self,
        request: Request<RemoveImageRequest>,
    ) -> Result<Response<RemoveImageResponse>, Status> {
        let name = named(request.into_inner().image)?;
        let images = self.images.clone();
        match blocking(&self.tasks, move || images.remove(&name)).await? {
            Ok(()) | Err(ImageError::NotFound(_)) => Ok(Response::new(RemoveImageResponse {})),
            Err(error) => Err(error.into()),
        }
    }

    async fn image_fs_info(
        &self,
        _request: Request<ImageFsInfoRequest>,
    ) -> Result<Response<ImageFsInfoResponse>, Status> {
        let images = self.images.clone();
        let usage = blocking(&self.tasks, move || images.usage()).await??;
        let usage = FilesystemUsage {
            timestamp: (self.clock)(),
            fs_id: Some(FilesystemIdentifier { mountpoint: usage.path.display().to_string() }),
            used_bytes: Some(UInt64Value { value: usage.bytes }),
            inodes_used: Some(UInt64Value { value: usage.inodes }),
        };
        // Containers write beside their images, and the kubelet wants to be told.
        let both = ImageFsInfoResponse {
            image_filesystems: vec![usage.clone()],
            container_filesystems: vec![usage],
        };
        Ok(Response::new(both))
    }
}

impl From<ImageError> for Status {
    fn from(error: ImageError) -> Self {
        CriError::from(error).into()
    }
}

/// Waits for the disk on a thread that may, for what frees or tells something.
async fn blocking<T: Send + 'static>(
    tasks: &TaskTracker,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Status> {
    on_a_thread_or_here(tracked(tasks, work)).await.map_err(|error| CriError::from(error).into())
}

fn stopping() -> Status {
    CriError::Stopping.into()
}

/// Lets the disk catch up while nobody waits for it.
pub(super) fn settle(images: &Images, tasks: &TaskTracker) {
    let images = images.clone();
    let work = tracked(tasks, move || images.settle());
    tasks.spawn(async move {
        let settled = match on_a_thread(work).await {
            Ok(settled) => settled,
            Err(error) => Err(error.into()),
        };
        if let Err(error) = settled {
            let error = Chain(&error).to_string();
            tracing::warn!(error, "new layers may have to be unpacked again after a power cut");
        }
    });
}

fn named(spec: Option<ImageSpec>) -> Result<String, Status> {
    let name = spec.map(|spec| spec.image).unwrap_or_default();
    if name.is_empty() {
        return Err(Status::invalid_argument("the request names no image"));
    }
    Ok(name)
}

fn to_cri(image: &Image) -> cri::Image {
    let (uid, username) = user(&image.config);
    cri::Image {
        id: image.id.to_string(),
        repo_tags: image.tags.clone(),
        repo_digests: image.digests.clone(),
        size: image.size,
        uid,
        username,
        spec: None,
        pinned: image.pinned,
    }
}

/// The user without the group: a number, or a name that only the container can look up.
fn user(config: &ImageConfiguration) -> (Option<Int64Value>, String) {
    let user = config.config().as_ref().and_then(|config| config.user().as_deref());
    let user = user.unwrap_or_default();
    let user = user.split_once(':').map_or(user, |(user, _)| user);
    match user.parse() {
        Ok(value) => (Some(Int64Value { value }), String::new()),
        Err(_) => (None, user.to_owned()),
    }
}

/// For those who look closely. Variables are named and their values left out.
fn info(image: &Image) -> Result<BTreeMap<String, String>, Status> {
    let failed = |error: serde_json::Error| Status::internal(error.to_string());
    let mut config = serde_json::to_value(&*image.config).map_err(failed)?;
    if let Some(serde_json::Value::Array(variables)) = config.pointer_mut("/config/Env") {
        for variable in variables {
            let text = variable.as_str().unwrap_or_default();
            *variable = text.split_once('=').map_or(text, |(name, _)| name).into();
        }
    }
    let info = serde_json::json!({ "imageSpec": config }).to_string();
    Ok(BTreeMap::from([("info".into(), info)]))
}

/// The credentials, if they are for the registry of this image.
fn to_auth(auth: AuthConfig, name: &str) -> Result<Option<Auth>, Status> {
    let AuthConfig { username, password, auth, server_address, identity_token, registry_token } =
        auth;
    let registry = name.parse::<ImageName>().map(|name| name.registry().to_owned());
    let is_other = registry.is_ok_and(|registry| {
        !server_address.is_empty() && host(&server_address) != host(&registry)
    });
    if is_other {
        return Ok(None);
    }
    if !registry_token.is_empty() {
        return Ok(Some(Auth::Token(SecretBytes::from(registry_token.into_bytes()))));
    }
    if !identity_token.is_empty() {
        return Err(Status::unimplemented(
            "identity tokens are not supported; give a user and a password, or a registry token",
        ));
    }
    if !username.is_empty() || !password.is_empty() {
        let password = SecretBytes::from(password.into_bytes());
        return Ok(Some(Auth::Basic { username, password }));
    }
    if auth.is_empty() {
        return Ok(None);
    }
    let bad =
        || Status::invalid_argument("`auth` of the credentials is not base64 of user:password");
    let encoded = SecretBytes::from(auth.into_bytes());
    let decoded = SecretBytes::from(STANDARD.decode(encoded.expose()).map_err(|_| bad())?);
    let pair = decoded.expose();
    let colon = pair.iter().position(|byte| *byte == b':').ok_or_else(bad)?;
    let (username, password) = (pair.get(..colon), pair.get(colon + 1..).unwrap_or_default());
    let username = username.and_then(|name| str::from_utf8(name).ok()).ok_or_else(bad)?;
    // Some clients pad with NUL.
    let end = password.iter().rposition(|byte| *byte != 0).map_or(0, |last| last.saturating_add(1));
    let password = password.get(..end).unwrap_or_default();
    Ok(Some(Auth::Basic { username: username.into(), password: SecretBytes::copy_of(password) }))
}

/// The host and port of an address, which may be a whole URL. Docker's registry has three names.
fn host(address: &str) -> &str {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    match rest.split('/').next().unwrap_or_default() {
        "index.docker.io" | "registry-1.docker.io" => "docker.io",
        host => host,
    }
}

#[cfg(test)]
mod tests;
