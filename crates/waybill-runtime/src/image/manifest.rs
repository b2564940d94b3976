//! Manifests, indexes and configurations: what an image consists of, and which one of several is
//! for this machine.

use std::collections::BTreeMap;

use oci_spec::image::{Descriptor, ImageConfiguration, ImageIndex, ImageManifest, MediaType};

use super::{
    catalog::{Layer, Record},
    digest::Digest,
    error::{ImageError, Result},
    name::ImageName,
};

/// Docker's names for what OCI calls an index, a manifest and a configuration.
const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const DOCKER_CONFIGURATION: &str = "application/vnd.docker.container.image.v1+json";

/// Marks what BuildKit says about an image, and which is none.
const ATTESTATION: &str = "vnd.docker.reference.type";

/// How many overlayfs can stack.
const MOST_LAYERS: usize = 500;

/// An image that is not in the catalogue yet.
pub(super) struct Found {
    pub(super) id: Digest,
    pub(super) manifest: Digest,
    pub(super) configuration: ImageConfiguration,
    /// From the lowest.
    pub(super) layers: Vec<Layer>,
    /// All that it consists of, with sizes.
    pub(super) blobs: BTreeMap<Digest, u64>,
}

impl Found {
    /// Puts a manifest and its configuration together.
    pub(super) fn new(
        (manifest_text, manifest): (&[u8], &ImageManifest),
        configuration_text: &[u8],
    ) -> Result<Self> {
        let id = Digest::of(configuration_text);
        let digest = Digest::of(manifest_text);
        let configuration = parse_configuration(configuration_text)?;
        let mut blobs = BTreeMap::from([
            (digest, manifest_text.len() as u64),
            (id, configuration_text.len() as u64),
        ]);
        for layer in manifest.layers() {
            blobs.insert(digest_of(layer)?, layer.size());
        }
        let layers = layers(manifest, &configuration)?;
        Ok(Self { id, manifest: digest, configuration, layers, blobs })
    }

    /// Everything that must not be collected while the image is being added.
    pub(super) fn leased(&self) -> impl Iterator<Item = Digest> {
        self.blobs.keys().copied().chain(self.layers.iter().map(|layer| layer.chain))
    }

    /// Called `names`, of which each leads to something with the digest `target`.
    pub(super) fn record(&self, names: &[ImageName], target: Digest) -> Record {
        Record {
            manifest: self.manifest,
            names: names.iter().filter_map(ImageName::tagged).collect(),
            digests: names.iter().map(|name| name.with_digest(target)).collect(),
            pinned: false,
            layers: self.layers.clone(),
            blobs: self.blobs.clone(),
        }
    }
}

/// What this machine runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Platform {
    architecture: &'static str,
}

impl Platform {
    /// Linux on the processor that we were built for.
    pub(super) const HERE: Self = Self {
        architecture: match std::env::consts::ARCH.as_bytes() {
            b"x86_64" => "amd64",
            b"aarch64" => "arm64",
            _ => std::env::consts::ARCH,
        },
    };

    /// As people write it.
    #[cfg(test)]
    pub(super) fn name(self) -> String {
        format!("linux/{}", self.architecture)
    }

    /// The best of what an index offers.
    pub(super) fn choose(self, offered: &[Descriptor]) -> Result<&Descriptor> {
        let images: Vec<_> = offered.iter().filter(|offer| !is_attestation(offer)).collect();
        // Only processors of a certain age run a variant of amd64; all run the one without.
        let suitable = images.iter().filter(|offer| self.suits(offer));
        let best = suitable.min_by_key(|offer| {
            offer.platform().as_ref().is_some_and(|platform| platform.variant().is_some())
        });
        if let Some(best) = best {
            return Ok(best);
        }
        if let [only] = images.as_slice()
            && only.platform().is_none()
        {
            return Ok(only);
        }
        let list: Vec<_> = images.iter().filter_map(|offer| offer.platform().as_ref()).collect();
        let list = list.iter().map(|it| format!("{}/{}", it.os(), it.architecture()));
        let list = list.collect::<Vec<_>>().join(", ");
        Err(ImageError::archive(format_args!(
            "there is no image for linux/{}; there are: {}",
            self.architecture,
            if list.is_empty() { "none" } else { &list }
        )))
    }

    fn suits(self, offer: &Descriptor) -> bool {
        offer.platform().as_ref().is_some_and(|platform| {
            platform.os().to_string() == "linux"
                && platform.architecture().to_string() == self.architecture
        })
    }
}

pub(super) fn is_attestation(offer: &Descriptor) -> bool {
    offer.annotations().as_ref().is_some_and(|notes| notes.contains_key(ATTESTATION))
}

/// What a descriptor leads to, by its media type.
pub(super) enum Target {
    Index,
    Manifest,
    Other,
}

impl Target {
    pub(super) fn of(media_type: &MediaType) -> Self {
        match media_type {
            MediaType::ImageIndex => Self::Index,
            MediaType::ImageManifest => Self::Manifest,
            MediaType::Other(other) if other == DOCKER_LIST => Self::Index,
            MediaType::Other(other) if other == DOCKER_MANIFEST => Self::Manifest,
            _ => Self::Other,
        }
    }
}

/// Our kind of digest, of a descriptor.
pub(super) fn digest_of(descriptor: &Descriptor) -> Result<Digest> {
    let text = descriptor.digest().as_ref();
    text.parse().map_err(|error| ImageError::archive(format_args!("{text}: {error}")))
}

pub(super) fn parse_index(text: &[u8]) -> Result<ImageIndex> {
    parse("an image index", text)
}

/// Also checks that it is an image's, and not one of the other things that registries keep.
pub(super) fn parse_manifest(text: &[u8]) -> Result<ImageManifest> {
    let manifest: ImageManifest = parse("an image manifest", text)?;
    if manifest.schema_version() != 2 {
        return Err(ImageError::archive("the image manifest is not of schema version 2"));
    }
    match manifest.config().media_type() {
        MediaType::ImageConfig => Ok(manifest),
        MediaType::Other(other) if other == DOCKER_CONFIGURATION => Ok(manifest),
        other => Err(ImageError::archive(format_args!(
            "this is not a container image: its configuration is of type {other}"
        ))),
    }
}

pub(super) fn parse_configuration(text: &[u8]) -> Result<ImageConfiguration> {
    parse("an image configuration", text)
}

fn parse<T: serde::de::DeserializeOwned>(what: &str, text: &[u8]) -> Result<T> {
    serde_json::from_slice(text)
        .map_err(|error| ImageError::archive(format_args!("{what} is malformed: {error}")))
}

/// Pairs the blobs of the manifest with the digests of the configuration.
fn layers(manifest: &ImageManifest, configuration: &ImageConfiguration) -> Result<Vec<Layer>> {
    let blobs = manifest.layers();
    let diffs = configuration.rootfs().diff_ids();
    if blobs.len() != diffs.len() {
        return Err(ImageError::archive(format_args!(
            "the image has {} layers and the digests of {}",
            blobs.len(),
            diffs.len()
        )));
    }
    if blobs.len() > MOST_LAYERS {
        let (what, limit) = ("the image".into(), MOST_LAYERS as u64);
        return Err(ImageError::Limit { what, limit, unit: "layers" });
    }
    let mut below = None;
    let pairs = blobs.iter().zip(diffs).map(|(blob, diff)| {
        let diff: Digest = diff
            .parse()
            .map_err(|error| ImageError::archive(format_args!("a layer's digest: {error}")))?;
        let chain = match below {
            None => diff,
            Some(below) => Digest::of(format!("{below} {diff}").as_bytes()),
        };
        below = Some(chain);
        Ok(Layer { chain, diff, blob: digest_of(blob)? })
    });
    pairs.collect()
}
