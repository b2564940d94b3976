//! Writes archives of images: an OCI image layout that `docker load` can read too.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Read, Write},
};

use serde_json::json;
use tar::{Builder, EntryType, Header};

use super::{
    archive::{CONTAINERD_NAME, REFERENCE_NAME},
    digest::Digest,
    name::ImageName,
};

/// An image as it goes into an archive.
pub(super) struct Written {
    pub(super) id: Digest,
    pub(super) manifest: Digest,
    /// Of the manifest.
    pub(super) media_type: String,
    pub(super) manifest_size: u64,
    /// The blobs of its layers, from the lowest.
    pub(super) layers: Vec<Digest>,
    pub(super) names: Vec<ImageName>,
}

/// Writes `images` with their `blobs`, of which `open` gives the content.
pub(super) fn write<R: Read>(
    to: impl Write,
    images: &[Written],
    blobs: &BTreeMap<Digest, u64>,
    mut open: impl FnMut(Digest) -> io::Result<R>,
) -> io::Result<()> {
    let mut archive = Builder::new(to);
    append(
        &mut archive,
        "oci-layout",
        &serde_json::to_vec(&json!({"imageLayoutVersion": "1.0.0"}))?,
    )?;
    append(&mut archive, "index.json", &serde_json::to_vec(&index(images))?)?;
    append(&mut archive, "manifest.json", &serde_json::to_vec(&docker_manifest(images))?)?;
    for directory in ["blobs/", "blobs/sha256/"] {
        let mut header = header(EntryType::Directory, 0o755, 0);
        archive.append_data(&mut header, directory, io::empty())?;
    }
    for (blob, size) in blobs {
        let mut header = header(EntryType::Regular, 0o644, *size);
        archive.append_data(&mut header, path(*blob), open(*blob)?.take(*size))?;
    }
    archive.into_inner()?.flush()
}

/// A header with nothing in it that differs from run to run.
pub(super) fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

fn append(archive: &mut Builder<impl Write>, path: &str, content: &[u8]) -> io::Result<()> {
    let mut header = header(EntryType::Regular, 0o644, content.len() as u64);
    archive.append_data(&mut header, path, content)
}

/// One entry for each name, as docker and containerd write it.
fn index(images: &[Written]) -> serde_json::Value {
    let entries = images.iter().flat_map(|image| {
        let entry = |annotations: serde_json::Value| {
            json!({
                "mediaType": image.media_type,
                "digest": image.manifest,
                "size": image.manifest_size,
                "annotations": annotations,
            })
        };
        let named = image.names.iter().map(|name| {
            let tag = name.tag().unwrap_or("latest");
            json!({ CONTAINERD_NAME: name.tagged(), REFERENCE_NAME: tag })
        });
        let mut annotations: Vec<_> = named.collect();
        if annotations.is_empty() {
            annotations.push(json!({}));
        }
        annotations.into_iter().map(entry).collect::<Vec<_>>()
    });
    json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": entries.collect::<Vec<_>>(),
    })
}

fn docker_manifest(images: &[Written]) -> serde_json::Value {
    let entries = images.iter().map(|image| {
        let tags: BTreeSet<_> = image.names.iter().filter_map(ImageName::tagged).collect();
        let layers: Vec<_> = image.layers.iter().map(|layer| path(*layer)).collect();
        json!({ "Config": path(image.id), "RepoTags": tags, "Layers": layers })
    });
    entries.collect()
}

fn path(blob: Digest) -> String {
    format!("blobs/sha256/{}", blob.hex())
}
