//! `cargo xtask image`: our programs as an image, in an OCI archive that `ctr images import` and `waybill image import` take.
//!
//! The image has the program, the wrapper for nodes, and the shared libraries that they need; no shell, no package. Two
//! runs over the same programs write the same bytes.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs::{self, File},
    io::{BufWriter, Write},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{process, repository::Repository};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where to write the archive
    #[arg(long, value_name = "FILE", default_value = "target/waybill-image.tar")]
    output: PathBuf,

    /// What the image is called
    #[arg(long, value_name = "NAME", default_value = "waybill.dev/waybill:0.1.0")]
    name: String,

    /// Our program; without this it is built for release
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,

    /// The wrapper for nodes, which must need no shared libraries; without this it is built for release
    #[arg(long, value_name = "PATH")]
    wrapper: Option<PathBuf>,
}

pub(crate) fn run(repository: &Repository, args: &Args) -> Result<()> {
    let binary = match &args.binary {
        Some(binary) => binary.clone(),
        None => {
            process::run(&mut repository.cargo(&["build", "--release", "--package", "waybill"]))?;
            repository.path("target/release/waybill")
        }
    };
    let wrapper = match &args.wrapper {
        Some(wrapper) => wrapper.clone(),
        None => build_wrapper(repository)?,
    };
    let scratch = tempfile::tempdir()?;
    let mut files = BTreeMap::new();
    add_program(&mut files, "usr/bin/waybill", &binary, scratch.path())?;
    add_program(&mut files, "usr/bin/waybill-oci", &wrapper, scratch.path())?;
    files.insert("etc/passwd".to_owned(), (0o644, b"root:x:0:0:root:/:/\n".to_vec()));
    let archive = archive(&args.name, &layer(&files)?)?;
    let mut output = BufWriter::new(File::create(&args.output)?);
    output.write_all(&archive)?;
    output.flush()?;
    println!("{}: {} of {} bytes", args.output.display(), args.name, archive.len());
    Ok(())
}

/// Other flags than usual, so in a folder of its own. The machine's own target is named so that the flags are
/// not for macros, too, which are libraries that programs load.
fn build_wrapper(repository: &Repository) -> Result<PathBuf> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let arguments = [
        "build",
        "--profile",
        "small",
        "--package",
        "waybill-oci",
        "--target",
        &target,
        "--target-dir",
        "target/static",
    ];
    let mut cargo = repository.cargo(&arguments);
    process::run(cargo.env("RUSTFLAGS", "-C target-feature=+crt-static"))?;
    Ok(repository.path(&format!("target/static/{target}/small/waybill-oci")))
}

/// Files of the image by their paths without the first slash: mode and content.
type Files = BTreeMap<String, (u32, Vec<u8>)>;

/// Adds a program without its debug information, and its libraries where it looks for them.
fn add_program(files: &mut Files, path: &str, from: &Path, scratch: &Path) -> Result<()> {
    let small = scratch.join("stripped");
    process::run(Command::new("strip").arg("-o").arg(&small).arg(from))?;
    files.insert(path.to_owned(), (0o755, read(&small)?));
    for library in libraries(from) {
        let place = library.trim_start_matches('/').to_owned();
        files.insert(place, (0o755, read(Path::new(&library))?));
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// A program without shared libraries makes `ldd` fail.
fn libraries(program: &Path) -> Vec<String> {
    let listed = Command::new("ldd").arg(program).output().map(|output| output.stdout);
    let listed = String::from_utf8_lossy(&listed.unwrap_or_default()).into_owned();
    listed.split_whitespace().filter(|word| word.starts_with('/')).map(str::to_owned).collect()
}

/// One layer with these files, and the folders that they are in.
fn layer(files: &Files) -> Result<Vec<u8>> {
    let mut tar = tar::Builder::new(Vec::new());
    let mut folders: Vec<String> =
        ["dev/", "host/", "proc/", "sys/", "tmp/"].map(Into::into).into();
    for path in files.keys() {
        folders
            .extend(path.match_indices('/').filter_map(|(at, _)| path.get(..=at)).map(Into::into));
    }
    folders.sort();
    folders.dedup();
    for folder in folders {
        let mode = if folder == "tmp/" { 0o1777 } else { 0o755 };
        append(&mut tar, &folder, mode, &[])?;
    }
    for (path, (mode, content)) in files {
        append(&mut tar, path, *mode, content)?;
    }
    Ok(tar.into_inner()?)
}

/// Everything is root's and of no time, so that the same content has the same digest.
fn append(tar: &mut tar::Builder<Vec<u8>>, path: &str, mode: u32, content: &[u8]) -> Result<()> {
    let mut header = tar::Header::new_gnu();
    let kind =
        if path.ends_with('/') { tar::EntryType::Directory } else { tar::EntryType::Regular };
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(u64::try_from(content.len())?);
    Ok(tar.append_data(&mut header, path, content)?)
}

/// The archive of the image layout: blobs by their digests, and an index that names the image.
fn archive(name: &str, layer: &[u8]) -> Result<Vec<u8>> {
    let config = json!({
        "architecture": architecture(), "os": "linux",
        "config": {"Entrypoint": ["/usr/bin/waybill"], "Env": ["PATH=/usr/bin"], "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": [digest(layer)]},
        "history": [{"created_by": "cargo xtask image"}],
    });
    let config = config.to_string().into_bytes();
    let blob = |kind: &str, bytes: &[u8]| {
        let kind = format!("application/vnd.oci.image.{kind}");
        json!({"mediaType": kind, "digest": digest(bytes), "size": bytes.len()})
    };
    let manifest = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob("config.v1+json", &config), "layers": [blob("layer.v1.tar", layer)],
    });
    let manifest = manifest.to_string().into_bytes();
    let tag = name.rsplit_once(':').map_or("latest", |(_, tag)| tag);
    let entry = json!({
        "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest(&manifest), "size": manifest.len(),
        // The first is what containerd reads, the second what everybody else does.
        "annotations": {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": tag},
        "platform": {"architecture": architecture(), "os": "linux"},
    });
    let index: Value = json!({"schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [entry]});
    let mut tar = tar::Builder::new(Vec::new());
    append(&mut tar, "oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    append(&mut tar, "index.json", 0o644, index.to_string().as_bytes())?;
    for folder in ["blobs/", "blobs/sha256/"] {
        append(&mut tar, folder, 0o755, &[])?;
    }
    for bytes in [&config[..], &manifest, layer] {
        append(&mut tar, &format!("blobs/sha256/{}", hex(bytes)), 0o644, bytes)?;
    }
    Ok(tar.into_inner()?)
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(bytes))
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn entries(bytes: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut archive = tar::Archive::new(bytes);
        let read = |entry: std::io::Result<tar::Entry<'_, &[u8]>>| {
            let mut entry = entry.unwrap();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            (entry.path().unwrap().display().to_string(), content)
        };
        archive.entries().unwrap().map(read).collect()
    }

    #[test]
    fn every_blob_has_the_digest_by_which_it_is_named() {
        let files = Files::from([("usr/bin/x".to_owned(), (0o755, b"program".to_vec()))]);
        let layer = layer(&files).unwrap();
        let inside = entries(&layer);
        assert_eq!(inside["usr/bin/x"], b"program");
        assert!(inside.contains_key("usr/bin/") && inside.contains_key("tmp/"));
        let archive = archive("waybill.dev/waybill:1", &layer).unwrap();
        let blobs = entries(&archive);
        let index: Value = serde_json::from_slice(&blobs["index.json"]).unwrap();
        let entry = &index["manifests"][0];
        assert_eq!(entry["annotations"]["io.containerd.image.name"], "waybill.dev/waybill:1");
        assert_eq!(entry["annotations"]["org.opencontainers.image.ref.name"], "1");
        let blob = |descriptor: &Value| {
            let digest = descriptor["digest"].as_str().unwrap();
            let bytes = &blobs[&format!("blobs/{}", digest.replace(':', "/"))];
            assert_eq!(super::digest(bytes), digest);
            assert_eq!(descriptor["size"], bytes.len());
            bytes.clone()
        };
        let manifest: Value = serde_json::from_slice(&blob(entry)).unwrap();
        let config: Value = serde_json::from_slice(&blob(&manifest["config"])).unwrap();
        assert_eq!(config["rootfs"]["diff_ids"][0], manifest["layers"][0]["digest"]);
        assert_eq!(blob(&manifest["layers"][0]), layer);
    }
}
