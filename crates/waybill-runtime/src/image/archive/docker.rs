//! What `docker save` writes. It has no manifest in the sense of registries, so we make one.

use std::collections::{BTreeMap, HashMap};

use oci_spec::image::{Descriptor, ImageManifest, ImageManifestBuilder, MediaType, Sha256Digest};
use serde::Deserialize;

use super::{Archived, Compression, Staged, StagedFile};
use crate::image::{
    digest::Digest,
    error::{ImageError, Result},
    manifest::Found,
    name::ImageName,
};

pub(super) const MANIFEST: &str = "manifest.json";
/// Of archives from before tags stood in the manifest: repository, tag, topmost layer.
const REPOSITORIES: &str = "repositories";

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    repo_tags: Option<Vec<String>>,
    #[serde(default)]
    layers: Vec<String>,
}

pub(super) fn images(staged: &mut Staged) -> Result<Vec<Archived>> {
    let repositories = repositories(staged)?;
    let mut images = Vec::new();
    for saved in saved(staged)? {
        let configuration = staged.text(&saved.config)?;
        let layers: Vec<StagedFile> =
            saved.layers.iter().map(|path| staged.file(path).cloned()).collect::<Result<_>>()?;
        let manifest = make_manifest(&configuration, &layers)?;
        let text = serde_json::to_vec(&manifest)
            .map_err(|error| ImageError::archive(format_args!("making a manifest: {error}")))?;
        let found = Found::new((&text, &manifest), &configuration)?;
        staged.add_text(&text)?;
        let tags = match saved.repo_tags {
            Some(tags) if !tags.is_empty() => tags,
            _ => saved.layers.last().map(|top| tags_of(&repositories, top)).unwrap_or_default(),
        };
        images.push(Archived { found, names: parse_tags(&tags)? });
    }
    Ok(images)
}

/// The tags of an archive that is an OCI layout as well, by the digests of configurations.
pub(super) fn names_by_configuration(staged: &Staged) -> Result<HashMap<Digest, Vec<ImageName>>> {
    if !staged.files.contains_key(MANIFEST) {
        return Ok(HashMap::new());
    }
    let pairs = saved(staged)?.into_iter().map(|saved| {
        let names = parse_tags(&saved.repo_tags.unwrap_or_default())?;
        Ok((staged.file(&saved.config)?.digest, names))
    });
    pairs.collect()
}

fn saved(staged: &Staged) -> Result<Vec<Saved>> {
    serde_json::from_slice(&staged.text(MANIFEST)?)
        .map_err(|error| ImageError::archive(format_args!("`{MANIFEST}` is malformed: {error}")))
}

type Repositories = BTreeMap<String, BTreeMap<String, String>>;

fn repositories(staged: &Staged) -> Result<Repositories> {
    if !staged.files.contains_key(REPOSITORIES) {
        return Ok(Repositories::new());
    }
    serde_json::from_slice(&staged.text(REPOSITORIES)?).map_err(|error| {
        ImageError::archive(format_args!("`{REPOSITORIES}` is malformed: {error}"))
    })
}

fn tags_of(repositories: &Repositories, top: &str) -> Vec<String> {
    let id = top.strip_suffix("/layer.tar").unwrap_or(top);
    let tags = repositories.iter().flat_map(|(repository, tags)| {
        let tags = tags.iter().filter(|(_, layer)| layer.as_str() == id);
        tags.map(move |(tag, _)| format!("{repository}:{tag}"))
    });
    tags.collect()
}

fn parse_tags(tags: &[String]) -> Result<Vec<ImageName>> {
    let parse = |name: &String| {
        name.parse().map_err(|reason| ImageError::Name { name: name.clone(), reason })
    };
    tags.iter().map(parse).collect()
}

fn make_manifest(configuration: &[u8], layers: &[StagedFile]) -> Result<ImageManifest> {
    let size = configuration.len() as u64;
    let configuration = descriptor(MediaType::ImageConfig, size, Digest::of(configuration))?;
    let layers = layers.iter().map(|layer| {
        let media_type = match layer.compression {
            Compression::None => MediaType::ImageLayer,
            Compression::Gzip => MediaType::ImageLayerGzip,
            Compression::Zstd => MediaType::ImageLayerZstd,
        };
        descriptor(media_type, layer.size, layer.digest)
    });
    ImageManifestBuilder::default()
        .schema_version(2_u32)
        .media_type(MediaType::ImageManifest)
        .config(configuration)
        .layers(layers.collect::<Result<Vec<_>>>()?)
        .build()
        .map_err(|error| ImageError::archive(format_args!("making a manifest: {error}")))
}

fn descriptor(media_type: MediaType, size: u64, digest: Digest) -> Result<Descriptor> {
    let digest: Sha256Digest = digest
        .hex()
        .parse()
        .map_err(|error| ImageError::archive(format_args!("making a descriptor: {error}")))?;
    Ok(Descriptor::new(media_type, size, digest))
}
