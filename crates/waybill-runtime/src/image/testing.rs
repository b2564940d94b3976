//! Archives for tests, also such as no program would write.

use std::io::{Read, Write};

use flate2::write::GzEncoder;
use serde_json::{Value, json};
use tar::Header;

use super::digest::Digest;

/// A tar archive under construction.
#[derive(Default)]
pub(super) struct Tarball(Vec<u8>);

impl Tarball {
    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) fn file(self, path: &str, content: &[u8]) -> Self {
        self.file_of_size(path, content, content.len() as u64)
    }

    pub(super) fn file_with(
        self,
        path: &str,
        content: &[u8],
        edit: impl FnOnce(&mut Header),
    ) -> Self {
        self.entry(path, b'0', content, content.len() as u64, edit)
    }

    /// With a size in its header that need not be the content's.
    pub(super) fn file_of_size(self, path: &str, content: &[u8], size: u64) -> Self {
        self.entry(path, b'0', content, size, |_| ())
    }

    pub(super) fn directory(self, path: &str, mode: u32) -> Self {
        self.entry(path, b'5', b"", 0, |header| header.set_mode(mode))
    }

    pub(super) fn symlink(self, path: &str, target: &str) -> Self {
        self.link(path, b'2', target)
    }

    pub(super) fn hard_link(self, path: &str, target: &str) -> Self {
        self.link(path, b'1', target)
    }

    pub(super) fn device(self, path: &str, kind: u8, major: u32, minor: u32) -> Self {
        self.entry(path, kind, b"", 0, |header| {
            header.set_device_major(major).unwrap();
            header.set_device_minor(minor).unwrap();
        })
    }

    pub(super) fn typed(self, path: &str, kind: u8) -> Self {
        self.entry(path, kind, b"", 0, |_| ())
    }

    pub(super) fn gnu_long(self, kind: u8, name: &str) -> Self {
        let name = format!("{name}\0");
        self.entry("././@LongLink", kind, name.as_bytes(), name.len() as u64, |_| ())
    }

    pub(super) fn gnu_long_of_size(self, kind: u8, size: u64) -> Self {
        self.entry("././@LongLink", kind, b"", size, |_| ())
    }

    pub(super) fn pax(self, records: &[(&str, &str)]) -> Self {
        let records: String = records.iter().map(|(key, value)| record(key, value)).collect();
        self.raw_pax(records.as_bytes())
    }

    pub(super) fn raw_pax(self, records: &[u8]) -> Self {
        self.entry("pax", b'x', records, records.len() as u64, |_| ())
    }

    pub(super) fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.0.extend([0; 1024]);
        self.0
    }

    fn link(self, path: &str, kind: u8, target: &str) -> Self {
        self.entry(path, kind, b"", 0, |header| {
            header.as_mut_bytes()[157..157 + target.len()].copy_from_slice(target.as_bytes());
        })
    }

    /// Sets the path byte by byte, since the `tar` crate refuses those that interest us.
    fn entry(
        mut self,
        path: &str,
        kind: u8,
        content: &[u8],
        size: u64,
        edit: impl FnOnce(&mut Header),
    ) -> Self {
        let mut header = Header::new_ustar();
        header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
        header.as_mut_bytes()[156] = kind;
        header.set_size(size);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1_000_000);
        edit(&mut header);
        header.set_cksum();
        self.0.extend(header.as_bytes());
        self.0.extend(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }
}

/// Makes a header's checksum right.
pub(super) fn fix_sum(header: &mut [u8]) {
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

pub(super) fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// Owners, devices and overlays are for root alone.
pub(super) fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("SKIPPED: only root may unpack layers and mount them");
    }
    root
}

fn record(key: &str, value: &str) -> String {
    let rest = format!(" {key}={value}\n");
    let mut length = rest.len();
    while length != rest.len() + length.to_string().len() {
        length = rest.len() + length.to_string().len();
    }
    format!("{length}{rest}")
}

/// The parts of an image, to be put into archives of either kind.
#[derive(Clone)]
pub(super) struct Sample {
    pub(super) configuration: Vec<u8>,
    pub(super) layers: Vec<Vec<u8>>,
    pub(super) manifest: Vec<u8>,
}

impl Sample {
    /// An image of these layers, as they are, with `note` to tell it from others.
    pub(super) fn new(note: &str, layers: &[Vec<u8>]) -> Self {
        let diffs: Vec<_> = layers.iter().map(|layer| Digest::of(&plain(layer))).collect();
        Self::with_diffs(note, layers, &diffs)
    }

    pub(super) fn with_diffs(note: &str, layers: &[Vec<u8>], diffs: &[Digest]) -> Self {
        let configuration = json!({
            "architecture": "amd64",
            "os": "linux",
            "author": note,
            "config": { "Cmd": ["/a"], "Env": null, "Volumes": { "/data": {} }, "OnBuild": null },
            "rootfs": { "type": "layers", "diff_ids": diffs },
        });
        let configuration = serde_json::to_vec(&configuration).unwrap();
        let describe = |kind: &str, blob: &[u8]| {
            json!({
                "mediaType": format!("application/vnd.oci.image.{kind}"),
                "digest": Digest::of(blob),
                "size": blob.len(),
            })
        };
        let manifest = json!({
            "schemaVersion": 2,
            "config": describe("config.v1+json", &configuration),
            "layers": layers.iter().map(|it| describe("layer.v1.tar", it)).collect::<Vec<_>>(),
        });
        let manifest = serde_json::to_vec(&manifest).unwrap();
        Self { configuration, layers: layers.to_vec(), manifest }
    }

    pub(super) fn id(&self) -> Digest {
        Digest::of(&self.configuration)
    }

    /// What an index says about it.
    pub(super) fn descriptor(&self, name: Option<&str>, platform: Option<&str>) -> Value {
        let mut descriptor = json!({
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": Digest::of(&self.manifest),
            "size": self.manifest.len(),
        });
        if let Some(name) = name {
            descriptor["annotations"] = json!({ "io.containerd.image.name": name });
        }
        if let Some((os, architecture)) = platform.and_then(|text| text.split_once('/')) {
            descriptor["platform"] = json!({ "os": os, "architecture": architecture });
        }
        descriptor
    }

    pub(super) fn blobs(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.layers.iter().chain([&self.configuration, &self.manifest])
    }
}

/// An OCI image layout with this index.
pub(super) fn oci_archive(manifests: &[Value], blobs: &[&[u8]]) -> Tarball {
    let index = json!({ "schemaVersion": 2, "manifests": manifests });
    let archive = Tarball::new()
        .file("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)
        .file("index.json", &serde_json::to_vec(&index).unwrap())
        .directory("blobs/sha256/", 0o755);
    blobs.iter().fold(archive, |archive, blob| {
        archive.file(&format!("blobs/sha256/{}", Digest::of(blob).hex()), blob)
    })
}

/// One image as an OCI image layout.
pub(super) fn oci_archive_of(sample: &Sample, name: Option<&str>) -> Vec<u8> {
    let blobs: Vec<_> = sample.blobs().map(Vec::as_slice).collect();
    oci_archive(&[sample.descriptor(name, None)], &blobs).finish()
}

fn plain(layer: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    super::compress::decompress(layer).unwrap().read_to_end(&mut plain).unwrap();
    plain
}
