//! OCI image layouts.

use oci_spec::image::Descriptor;

use super::{Archived, Staged, StagedFile, missing};
use crate::image::{
    digest::Digest,
    error::{ImageError, Result},
    manifest::{self, Found, Platform, Target, digest_of},
    name::ImageName,
};

pub(super) const INDEX: &str = "index.json";
pub(super) const LAYOUT: &str = "oci-layout";

/// The whole name, by containerd and docker.
pub(in crate::image) const CONTAINERD_NAME: &str = "io.containerd.image.name";
/// By the specification; a tag or a whole name.
pub(in crate::image) const REFERENCE_NAME: &str = "org.opencontainers.image.ref.name";

/// How deep indexes may lie in one another.
const DEEPEST: usize = 4;

pub(super) fn images(staged: &Staged, platform: Platform) -> Result<Vec<Archived>> {
    let index = manifest::parse_index(&staged.text(INDEX)?)?;
    let tags = super::docker::names_by_configuration(staged)?;
    let mut images: Vec<Archived> = Vec::new();
    for group in groups(index.manifests()) {
        let (chosen, name) = match group {
            Group::Single(descriptor) => {
                let name = full_name(&descriptor)?;
                (*descriptor, name)
            }
            Group::Platforms(name, offers) => {
                (platform.choose(&offers)?.clone(), name.map(|name| parse_name(&name)).transpose()?)
            }
        };
        let found = image(staged, &chosen, platform, DEEPEST)?;
        let mut names: Vec<ImageName> = name.into_iter().collect();
        if names.is_empty() {
            names.extend(tags.get(&found.id).into_iter().flatten().cloned());
        }
        match images.iter_mut().find(|known| known.found.id == found.id) {
            Some(known) => known.names.extend(names),
            None => images.push(Archived { found, names }),
        }
    }
    Ok(images)
}

/// Entries of the layout's own index that are one image.
enum Group {
    Single(Box<Descriptor>),
    /// The same image for several platforms, listed side by side.
    Platforms(Option<String>, Vec<Descriptor>),
}

fn groups(entries: &[Descriptor]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for entry in entries.iter().filter(|entry| !manifest::is_attestation(entry)) {
        if entry.platform().is_none() {
            groups.push(Group::Single(Box::new(entry.clone())));
            continue;
        }
        let name = annotated_name(entry);
        let same = groups.iter_mut().find_map(|group| match group {
            Group::Platforms(known, offers) if *known == name => Some(offers),
            _ => None,
        });
        match same {
            Some(offers) => offers.push(entry.clone()),
            None => groups.push(Group::Platforms(name, vec![entry.clone()])),
        }
    }
    groups
}

fn image(
    staged: &Staged,
    descriptor: &Descriptor,
    platform: Platform,
    depth: usize,
) -> Result<Found> {
    let text = staged.read_text(blob(staged, descriptor)?, "a manifest")?;
    match Target::of(descriptor.media_type()) {
        Target::Index if depth == 0 => {
            Err(ImageError::archive("the archive's indexes lie too deep in one another"))
        }
        Target::Index => {
            let index = manifest::parse_index(&text)?;
            image(staged, platform.choose(index.manifests())?, platform, depth - 1)
        }
        Target::Manifest => {
            let manifest = manifest::parse_manifest(&text)?;
            let configuration = blob(staged, manifest.config())?;
            let configuration = staged.read_text(configuration, "an image configuration")?;
            for layer in manifest.layers() {
                blob(staged, layer)?;
            }
            Found::new((&text, &manifest), &configuration)
        }
        Target::Other => Err(ImageError::archive(format_args!(
            "the archive holds something else than images: {}",
            descriptor.media_type()
        ))),
    }
}

/// The file at the place of a blob, if it is that blob.
fn blob<'a>(staged: &'a Staged, descriptor: &Descriptor) -> Result<&'a StagedFile> {
    let expected: Digest = digest_of(descriptor)?;
    let path = format!("blobs/sha256/{}", expected.hex());
    let file = staged.file(&path).map_err(|_| missing(expected))?;
    if file.digest != expected {
        let what = format!("the archive's `{path}`");
        return Err(ImageError::Digest { what, expected, found: file.digest });
    }
    if file.size != descriptor.size() {
        return Err(ImageError::archive(format_args!(
            "the archive's `{path}` has {} bytes and not {}, as it should",
            file.size,
            descriptor.size()
        )));
    }
    Ok(file)
}

fn full_name(descriptor: &Descriptor) -> Result<Option<ImageName>> {
    annotated_name(descriptor).map(|name| parse_name(&name)).transpose()
}

fn parse_name(name: &str) -> Result<ImageName> {
    name.parse().map_err(|reason| ImageError::Name { name: name.into(), reason })
}

fn annotated_name(descriptor: &Descriptor) -> Option<String> {
    let notes = descriptor.annotations().as_ref()?;
    let reference = || notes.get(REFERENCE_NAME).filter(|name| name.contains(['/', ':']));
    notes.get(CONTAINERD_NAME).or_else(reference).cloned()
}
