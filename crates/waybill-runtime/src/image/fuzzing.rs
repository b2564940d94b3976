//! Doors for the fuzzers: what strangers send.

use std::{io::Read, path::Path};

use super::{Images, Limits, compress, limits::Limited, name::ImageName, tar_reader::Entries};

/// Small, so that no input takes long.
const LIMITS: Limits = Limits {
    archive_bytes: 1 << 20,
    archive_entries: 100,
    layer_bytes: 1 << 20,
    layer_entries: 100,
    metadata_bytes: 64 << 10,
};

/// A store in an empty directory.
pub fn store(directory: &Path) -> Images {
    let Ok(images) = Images::open_with(directory, LIMITS) else {
        unreachable!("the fuzzer has a directory of its own")
    };
    images
}

/// An archive, imported for good, and what its entries are when read as a layer.
pub fn archive(images: &Images, data: &[u8]) {
    let mut data = data.to_vec();
    fix_sums(&mut data);
    if let Ok(unpacked) = compress::decompress(data.as_slice()) {
        let mut entries = Entries::new(Limited::new(unpacked, LIMITS.archive_bytes, "the input"));
        while let Ok(Some(_)) = entries.next() {
            let _ = std::io::copy(&mut entries.by_ref().take(10), &mut std::io::sink());
        }
    }
    for image in images.import(data.as_slice(), None).unwrap_or_default() {
        let _ = images.remove(&image.id.to_string());
    }
}

/// A name that is accepted reads as itself.
pub fn name(text: &str) {
    if let Ok(name) = text.parse::<ImageName>() {
        assert_eq!(name.to_string().parse(), Ok(name));
    }
}

/// Makes what looks like headers pass for such, since no fuzzer guesses a checksum.
fn fix_sums(data: &mut [u8]) {
    for block in data.chunks_exact_mut(512) {
        if block.get(257..262) == Some(b"ustar") {
            let field = block.get_mut(148..156).unwrap_or_default();
            field.fill(b' ');
            let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
            let field = block.get_mut(148..156).unwrap_or_default();
            field.copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
    }
}
