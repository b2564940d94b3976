//! Import of an image, beside what `tar` needs to unpack the same layer.
//!
//! An import does more than `tar`: it stores the archive's blobs, checks three digests and waits
//! until they are on disk. Both run in turns on the same files, so that the ratio means something on
//! a busy machine. With `--test` everything runs once, on little data, and nothing is measured.

#![expect(clippy::print_stdout, reason = "the numbers are the point")]

use std::{
    fs,
    io::Write,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use flate2::{Compression, write::GzEncoder};
use serde_json::json;
use waybill_runtime::image::{Digest, Images, build::ImageBuilder};

fn main() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root may unpack layers");
        return;
    }
    let is_test = std::env::args().any(|argument| argument == "--test");
    let (small, large, rounds) = if is_test { (10, 1, 1) } else { (5000, 12, 7) };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let layer = make_layer(small, large);
    for (kind, packed) in [("plain", layer.clone()), ("gzip", gzip(&layer))] {
        let (imports, tars) = measure(directory.path(), &layer, &packed, rounds);
        if !is_test {
            let ratio = imports.as_secs_f64() / tars.as_secs_f64();
            let megabytes = layer.len() / 1_000_000;
            println!(
                "{kind}: {small} small files, {large} large ones, {megabytes} MB; import {imports:.0?}, \
                 tar -x {tars:.0?}, ratio {ratio:.2} (medians of {rounds})"
            );
        }
    }
}

/// Medians of both.
fn measure(directory: &Path, layer: &[u8], packed: &[u8], rounds: usize) -> (Duration, Duration) {
    let blob = directory.join("layer");
    fs::write(&blob, packed).expect("writable");
    let archive = directory.join("archive.tar");
    fs::write(&archive, make_archive(layer, packed)).expect("writable");
    let (mut imports, mut tars) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        imports.push(import(directory, &archive));
        tars.push(untar(directory, &blob));
    }
    (median(imports), median(tars))
}

fn import(directory: &Path, archive: &Path) -> Duration {
    let state = tempfile::tempdir_in(directory).expect("a temporary directory");
    let images = Images::open(state.path()).expect("a new store");
    let file = fs::File::open(archive).expect("the archive is there");
    let start = Instant::now();
    images.import(file, Some("bench")).expect("a good archive");
    start.elapsed()
}

fn untar(directory: &Path, blob: &Path) -> Duration {
    let target = tempfile::tempdir_in(directory).expect("a temporary directory");
    let mut command = Command::new("tar");
    command.arg("-xf").arg(blob).arg("-C").arg(target.path());
    command.args(["--numeric-owner", "--same-owner", "--same-permissions", "--xattrs"]);
    let start = Instant::now();
    assert!(command.status().expect("tar starts").success());
    start.elapsed()
}

/// Files of a few kilobytes in many directories, and some of eight megabytes.
fn make_layer(small: usize, large: usize) -> Vec<u8> {
    // A cheap generator: bytes that compress to about half, as programs do.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut content = |length: usize| -> Vec<u8> {
        let bytes = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            // Sixteen different values hold four bits each.
            b'a' + u8::try_from(state % 16).unwrap_or(0)
        });
        bytes.take(length).collect()
    };
    let mut image = ImageBuilder::new();
    for at in 0..small {
        let path = format!("/usr/share/d{:03}/f{at}", at / 25);
        image = image.file(&path, 0o644, content(500 + at * 7919 % 12_000));
    }
    for at in 0..large {
        image = image.file(&format!("/usr/lib/l{at}"), 0o755, content(8 << 20));
    }
    image.layer().expect("a layer")
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).expect("memory");
    encoder.finish().expect("memory")
}

/// As `docker save` writes it.
fn make_archive(layer: &[u8], packed: &[u8]) -> Vec<u8> {
    let configuration = json!({
        "architecture": "amd64",
        "os": "linux",
        "rootfs": { "type": "layers", "diff_ids": [Digest::of(layer)] },
    })
    .to_string();
    let manifest = json!([{ "Config": "config.json", "Layers": ["layer.tar"] }]).to_string();
    let mut archive = tar::Builder::new(Vec::new());
    let files = [
        ("config.json", configuration.as_bytes()),
        ("layer.tar", packed),
        ("manifest.json", manifest.as_bytes()),
    ];
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, path, content).expect("memory");
    }
    archive.into_inner().expect("memory")
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
