//! Images into archives.

use std::{collections::BTreeMap, io::Write, sync::Arc};

use super::{
    catalog::Meaning,
    digest::Digest,
    error::{Doing, ImageError, Result},
    layout::{self, Written},
    manifest,
    name::ImageName,
    store::Store,
};

/// Writes the images that `wanted` names into one archive.
///
/// An image that is asked for by a name goes under that name alone, else under all of its names.
pub(super) fn export(store: &Arc<Store>, wanted: &[String], to: impl Write) -> Result<()> {
    let mut images: Vec<Written> = Vec::new();
    let mut blobs: BTreeMap<Digest, u64> = BTreeMap::new();
    for text in wanted {
        let (meaning, record) = store.read(|catalog, _| {
            let meaning = catalog.resolve(text)?;
            let record = catalog.images.get(&meaning.id()).cloned();
            record.map(|record| (meaning, record)).ok_or_else(|| ImageError::NotFound(text.clone()))
        })?;
        let names = match &meaning {
            Meaning::Name(_, name) => vec![name],
            Meaning::Id(_) => record.names.iter().collect(),
        };
        let names: Vec<ImageName> = names.iter().filter_map(|name| name.parse().ok()).collect();
        if let Some(known) = images.iter_mut().find(|image| image.id == meaning.id()) {
            known.names.extend(
                names.into_iter().filter(|name| !known.names.contains(name)).collect::<Vec<_>>(),
            );
            continue;
        }
        images.push(Written {
            id: meaning.id(),
            manifest: record.manifest,
            media_type: media_type(store, record.manifest)?,
            manifest_size: record.blobs.get(&record.manifest).copied().unwrap_or(0),
            layers: record.layers.iter().map(|layer| layer.blob).collect(),
            names,
        });
        blobs.extend(&record.blobs);
    }
    // Nothing may be removed while it is being read.
    let _lease = store.lease(blobs.keys().copied());
    layout::write(to, &images, &blobs, |blob| Ok(store.open_blob(blob)?))
        .doing(|| "writing the archive")
}

/// Registries give manifests of docker's type too, and the descriptor must say which.
fn media_type(store: &Store, digest: Digest) -> Result<String> {
    let text =
        std::fs::read(store.blob_path(digest)).doing(|| format!("reading the blob {digest}"))?;
    let manifest = manifest::parse_manifest(&text)?;
    let media_type = manifest.media_type().as_ref().map(ToString::to_string);
    Ok(media_type.unwrap_or_else(|| "application/vnd.oci.image.manifest.v1+json".into()))
}
