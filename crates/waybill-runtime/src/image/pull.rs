//! Images from registries.
//!
//! A registry is asked for a manifest, chooses nothing for us, and gets no say in what lands on
//! disk: every byte is compared with a digest that the manifest, or the name itself, has fixed.
//! Credentials and addresses with signatures never reach a log or an error.

mod reason;

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures_util::{StreamExt, TryStreamExt, stream};
use oci_client::{
    Client, Reference, RegistryOperation,
    client::{ClientConfig, ClientProtocol},
    errors::OciDistributionError,
    secrets::RegistryAuth,
};
use oci_spec::image::Descriptor;
use serde::Deserialize;
use waybill_core::secret::SecretBytes;

use super::{
    Image,
    digest::{Digest, Hashing},
    error::{Doing, ImageError, Result},
    image,
    manifest::{self, Found, Platform, digest_of},
    name::ImageName,
    store::{Lease, Store},
};
use crate::blocking::on_a_thread;

/// How many blobs are fetched at a time.
const MOST_FETCHES: usize = 3;

/// How much of a blob is collected before it is written.
const PIECE: usize = 1 << 20;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Without a single byte.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// What we can read.
const ACCEPTED: &[&str] = &[
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
];

/// Who asks a registry.
pub enum Auth {
    /// By name and password, directly or in exchange for a token.
    Basic {
        /// The name.
        username: String,
        /// The password.
        password: SecretBytes,
    },
    /// By a token for this very registry.
    Token(SecretBytes),
}

/// How far a blob has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Which one.
    pub blob: Digest,
    /// Bytes that are here.
    pub received: u64,
    /// Bytes that it has.
    pub total: u64,
}

/// Pulls an image and returns it as it came.
pub(super) async fn pull(
    store: &Arc<Store>,
    name: &ImageName,
    auth: Option<&Auth>,
    watch: &(impl Fn(Progress) + Sync),
) -> Result<Image> {
    // The registry's client asks tokio's pool for a thread to look its name up, and would panic.
    blocking(|| Ok(())).await?;
    let registry = Registry::new(name, auth)?;
    let limit = store.limits.metadata_bytes;
    let target = registry.manifest(name.digest(), limit).await?;
    let root = Digest::of(&target);
    let text = registry.choose(target, limit).await?;
    let manifest = manifest::parse_manifest(&text)?;
    let blobs = descriptors(&manifest)?;
    let _lease = store.lease(blobs.iter().map(|blob| blob.digest).chain([Digest::of(&text)]));
    put(store, &text).await?;
    fetch_all(store, &registry, blobs, watch).await?;
    let configuration = read(store, digest_of(manifest.config())?).await?;
    let found = Found::new((&text, &manifest), &configuration)?;
    let names = named(name)?;
    let lease = store.lease(found.leased());
    finish(Arc::clone(store), found, names, root, lease).await
}

/// What the rest of the work needs a thread for.
async fn finish(
    store: Arc<Store>,
    found: Found,
    names: Vec<ImageName>,
    root: Digest,
    lease: Lease,
) -> Result<Image> {
    blocking(move || {
        let (id, record) = (found.id, found.record(&names, root));
        let configuration = Arc::new(found.configuration);
        store.unpack_layers(&found.layers)?;
        let pulled = image(id, &record, &configuration);
        store.add_image(id, record, configuration)?;
        drop(lease);
        store.collect()?;
        Ok(pulled)
    })
    .await
}

/// A tag beside a digest is not looked at, so it is not remembered either.
fn named(name: &ImageName) -> Result<Vec<ImageName>> {
    let Some(digest) = name.digest() else { return Ok(vec![name.clone()]) };
    let text = name.with_digest(digest);
    let name = text.parse().map_err(|reason| ImageError::Name { name: text, reason })?;
    Ok(vec![name])
}

/// A blob that is wanted.
#[derive(Clone, Copy)]
struct Wanted {
    digest: Digest,
    size: u64,
}

fn descriptors(manifest: &oci_spec::image::ImageManifest) -> Result<Vec<Wanted>> {
    let all = manifest.layers().iter().chain([manifest.config()]);
    let wanted = |it: &Descriptor| Ok(Wanted { digest: digest_of(it)?, size: it.size() });
    let mut blobs = all.map(wanted).collect::<Result<Vec<_>>>()?;
    // The same layer may be used twice.
    blobs.sort_by_key(|blob| blob.digest);
    blobs.dedup_by_key(|blob| blob.digest);
    Ok(blobs)
}

async fn fetch_all(
    store: &Arc<Store>,
    registry: &Registry,
    blobs: Vec<Wanted>,
    watch: &(impl Fn(Progress) + Sync),
) -> Result<()> {
    let largest = store.limits.archive_bytes;
    let total = blobs.iter().fold(0_u64, |total, blob| total.saturating_add(blob.size));
    if total > largest {
        let what = format!("the image {}", registry.name);
        return Err(ImageError::Limit { what, limit: largest, unit: "bytes" });
    }
    let fetches = blobs.into_iter().map(|blob| fetch(store, registry, blob, watch));
    stream::iter(fetches).buffer_unordered(MOST_FETCHES).try_collect::<()>().await
}

/// Whoever else wants the same blob waits, and then finds it.
async fn fetch(
    store: &Arc<Store>,
    registry: &Registry,
    blob: Wanted,
    watch: &(impl Fn(Progress) + Sync),
) -> Result<()> {
    let _lock = store.blob_locks.lock(blob.digest).await;
    let progress = |received| Progress { blob: blob.digest, received, total: blob.size };
    if store.has_blob(blob.digest) {
        watch(progress(blob.size));
        return Ok(());
    }
    let temporary = Temporary(store.temporary());
    let path = temporary.0.as_path();
    let doing = || format!("writing {}", path.display());
    // Made here and now: a task that is dropped must not leave a thread behind that makes it later.
    let mut file = fs::File::create(path).doing(doing)?;
    let mut waiting = Vec::new();
    let mut hash = Hashing::new(std::io::sink());
    let mut received = 0_u64;
    let mut content = registry.blob(blob.digest).await?;
    while let Some(bytes) = content.next().await {
        let bytes = match bytes {
            Ok(bytes) => bytes,
            // It is told below, with both digests.
            Err(error) if reason::is_wrong_digest(&error) => break,
            Err(error) => return Err(registry.failed(reason::of_stream(&error))),
        };
        received = received.saturating_add(bytes.len() as u64);
        if received > blob.size {
            break;
        }
        hash.write_all(&bytes).doing(doing)?;
        waiting.extend_from_slice(&bytes);
        if waiting.len() >= PIECE {
            file = write(file, std::mem::take(&mut waiting), path).await?;
        }
        watch(progress(received));
    }
    drop(write(file, waiting, path).await?);
    if received != blob.size {
        let more = if received > blob.size { "more than " } else { "" };
        return Err(registry.failed(format!(
            "the blob {} has {more}{} bytes and not {}, as the manifest says",
            blob.digest,
            received.min(blob.size),
            blob.size
        )));
    }
    let (expected, found) = (blob.digest, hash.finish().1);
    if found != expected {
        let what = format!("a blob of {} from {}", registry.name, registry.name.registry());
        return Err(ImageError::Digest { what, expected, found });
    }
    add(store, expected, path).await
}

async fn write(mut file: fs::File, bytes: Vec<u8>, path: &Path) -> Result<fs::File> {
    let path = path.to_owned();
    blocking(move || {
        file.write_all(&bytes).doing(|| format!("writing {}", path.display()))?;
        Ok(file)
    })
    .await
}

/// A manifest that is in memory already.
async fn put(store: &Arc<Store>, text: &[u8]) -> Result<()> {
    let temporary = Temporary(store.temporary());
    let path = temporary.0.as_path();
    fs::write(path, text).doing(|| format!("writing {}", path.display()))?;
    add(store, Digest::of(text), path).await
}

async fn add(store: &Arc<Store>, blob: Digest, path: &Path) -> Result<()> {
    let (store, path) = (Arc::clone(store), path.to_owned());
    blocking(move || store.add_blob(blob, &path)).await
}

async fn read(store: &Arc<Store>, blob: Digest) -> Result<Vec<u8>> {
    let limit = store.limits.metadata_bytes;
    let path = store.blob_path(blob);
    let doing = move || format!("reading the blob {blob}");
    blocking(move || {
        if fs::metadata(&path).doing(doing)?.len() > limit {
            let what = "an image configuration".into();
            return Err(ImageError::Limit { what, limit, unit: "bytes" });
        }
        fs::read(&path).doing(doing)
    })
    .await
}

/// Waits for the disk on a thread that may; refuses if there is none.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    on_a_thread(work).await?
}

/// A file that goes away unless it was moved to its place.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // Mostly it was moved.
        let _ = fs::remove_file(&self.0);
    }
}

/// A registry, asked about one image.
struct Registry {
    client: Client,
    auth: RegistryAuth,
    name: ImageName,
}

impl Registry {
    fn new(name: &ImageName, auth: Option<&Auth>) -> Result<Self> {
        let plain = is_loopback(name.registry()).then(|| name.registry().to_owned());
        let config = ClientConfig {
            protocol: ClientProtocol::HttpsExcept(plain.into_iter().collect()),
            connect_timeout: Some(CONNECT_TIMEOUT),
            read_timeout: Some(READ_TIMEOUT),
            user_agent: concat!("waybill/", env!("CARGO_PKG_VERSION")),
            ..ClientConfig::default()
        };
        let failed = |reason| ImageError::Registry {
            registry: name.registry().into(),
            image: name.to_string(),
            reason,
        };
        let client = Client::try_from(config).map_err(|error| failed(reason::of(error)))?;
        let auth = registry_auth(auth).map_err(|reason| failed(reason.into()))?;
        Ok(Self { client, auth, name: name.clone() })
    }

    /// The text that a tag or digest leads to.
    async fn manifest(&self, digest: Option<Digest>, limit: u64) -> Result<Vec<u8>> {
        let reference = self.reference(digest);
        self.client
            .auth(&reference, &self.auth, RegistryOperation::Pull)
            .await
            .map_err(|error| self.failed(reason::of(error)))?;
        let (text, _) = self
            .client
            .pull_manifest_raw(&reference, &self.auth, ACCEPTED)
            .await
            .map_err(|error| self.refused(error))?;
        if text.len() as u64 > limit {
            let what = format!("the manifest of {}", self.name);
            return Err(ImageError::Limit { what, limit, unit: "bytes" });
        }
        let found = Digest::of(&text);
        match digest {
            Some(expected) if expected != found => {
                let what = format!("the manifest of {}", self.name);
                Err(ImageError::Digest { what, expected, found })
            }
            _ => Ok(text.into()),
        }
    }

    /// The manifest for this machine, if `text` is an index of several.
    async fn choose(&self, text: Vec<u8>, limit: u64) -> Result<Vec<u8>> {
        /// An index has manifests, an image has layers; media types may be missing.
        #[derive(Deserialize)]
        struct Shape {
            manifests: Option<serde::de::IgnoredAny>,
        }
        let is_index =
            serde_json::from_slice(&text).is_ok_and(|shape: Shape| shape.manifests.is_some());
        if !is_index {
            return Ok(text);
        }
        let index = manifest::parse_index(&text)?;
        let chosen = Platform::HERE.choose(index.manifests())?;
        self.manifest(Some(digest_of(chosen)?), limit).await
    }

    async fn blob(&self, blob: Digest) -> Result<oci_client::client::SizedStream> {
        // By digest alone: other addresses that a manifest may offer are not looked at.
        let digest = blob.to_string();
        let reference = self.reference(None);
        let content = self.client.pull_blob_stream(&reference, digest.as_str()).await;
        content.map_err(|error| self.refused(error))
    }

    fn reference(&self, digest: Option<Digest>) -> Reference {
        let (registry, repository) = (self.name.registry().into(), self.name.repository().into());
        match digest {
            Some(digest) => Reference::with_digest(registry, repository, digest.to_string()),
            None => {
                let tag = self.name.tag().unwrap_or("latest").to_owned();
                Reference::with_tag(registry, repository, tag)
            }
        }
    }

    fn refused(&self, error: OciDistributionError) -> ImageError {
        self.failed(reason::of(error))
    }

    fn failed(&self, reason: String) -> ImageError {
        let registry = self.name.registry().into();
        ImageError::Registry { registry, image: self.name.to_string(), reason }
    }
}

fn registry_auth(auth: Option<&Auth>) -> std::result::Result<RegistryAuth, &'static str> {
    let text = |secret: &SecretBytes| {
        str::from_utf8(secret.expose())
            .map(ToOwned::to_owned)
            .map_err(|_| "the password is not text")
    };
    Ok(match auth {
        None => RegistryAuth::Anonymous,
        Some(Auth::Basic { username, password }) => {
            RegistryAuth::Basic(username.clone(), text(password)?)
        }
        Some(Auth::Token(token)) => RegistryAuth::Bearer(text(token)?),
    })
}

/// Whether nobody else can listen in.
fn is_loopback(registry: &str) -> bool {
    let host = match registry.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => host,
        _ => registry,
    };
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests;
