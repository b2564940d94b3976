//! Makes small images in memory: for tests, and for the one that comes with the program.

use std::{collections::BTreeMap, io};

use oci_spec::image::{
    Arch, ConfigBuilder, ImageConfiguration, ImageConfigurationBuilder, Os, RootFsBuilder,
};
use serde_json::json;
use tar::{Builder, EntryType};

use super::{
    digest::Digest,
    error::{Doing, ImageError, Result},
    layout::{self, Written},
    name::ImageName,
};

/// An image under construction: one layer of files, and how to run it.
///
/// The same calls give the same bytes, on every machine of a kind.
#[derive(Clone, Debug, Default)]
pub struct ImageBuilder {
    entries: Vec<(String, Entry)>,
    entrypoint: Vec<String>,
    command: Vec<String>,
    environment: Vec<String>,
    user: Option<String>,
    working_directory: Option<String>,
}

#[derive(Clone, Debug)]
enum Entry {
    Directory { mode: u32 },
    File { mode: u32, content: Vec<u8> },
    Symlink { target: String },
}

impl ImageBuilder {
    /// An image without files.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a directory. Those above it get mode 755 if they are not added.
    #[must_use]
    pub fn directory(mut self, path: &str, mode: u32) -> Self {
        self.entries.push((path.into(), Entry::Directory { mode }));
        self
    }

    /// Adds a file.
    #[must_use]
    pub fn file(mut self, path: &str, mode: u32, content: impl Into<Vec<u8>>) -> Self {
        self.entries.push((path.into(), Entry::File { mode, content: content.into() }));
        self
    }

    /// Adds a symbolic link.
    #[must_use]
    pub fn symlink(mut self, path: &str, target: &str) -> Self {
        self.entries.push((path.into(), Entry::Symlink { target: target.into() }));
        self
    }

    /// What always runs.
    #[must_use]
    pub fn entrypoint(mut self, arguments: &[&str]) -> Self {
        self.entrypoint = owned(arguments);
        self
    }

    /// What runs, or the arguments of the entrypoint, unless others are given.
    #[must_use]
    pub fn command(mut self, arguments: &[&str]) -> Self {
        self.command = owned(arguments);
        self
    }

    /// Adds a variable to the image's environment.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.environment.push(format!("{name}={value}"));
        self
    }

    /// Who runs it: `user`, `uid`, `user:group` or `uid:gid`.
    #[must_use]
    pub fn user(mut self, user: &str) -> Self {
        self.user = Some(user.into());
        self
    }

    /// Where it runs.
    #[must_use]
    pub fn working_directory(mut self, path: &str) -> Self {
        self.working_directory = Some(path.into());
        self
    }

    /// The image as an archive that can be imported here, and by docker, containerd and podman.
    pub fn archive(&self, name: &str) -> Result<Vec<u8>> {
        let name: ImageName =
            name.parse().map_err(|reason| ImageError::Name { name: name.into(), reason })?;
        let mut archive = Vec::new();
        self.write(&mut archive, name).doing(|| "making an image")?;
        Ok(archive)
    }

    /// The layer alone.
    pub fn layer(&self) -> Result<Vec<u8>> {
        self.write_layer().doing(|| "making a layer")
    }

    fn write(&self, archive: &mut Vec<u8>, name: ImageName) -> io::Result<()> {
        let layer = self.write_layer()?;
        let diff = Digest::of(&layer);
        let configuration =
            serde_json::to_vec(&self.configuration(diff).map_err(io::Error::other)?)?;
        let id = Digest::of(&configuration);
        let manifest = serde_json::to_vec(&json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {
                "mediaType": "application/vnd.oci.image.config.v1+json",
                "digest": id,
                "size": configuration.len(),
            },
            "layers": [{
                "mediaType": "application/vnd.oci.image.layer.v1.tar",
                "digest": diff,
                "size": layer.len(),
            }],
        }))?;
        let written = Written {
            id,
            manifest: Digest::of(&manifest),
            media_type: MANIFEST.into(),
            manifest_size: manifest.len() as u64,
            layers: vec![diff],
            names: vec![name],
        };
        let contents: BTreeMap<Digest, Vec<u8>> =
            [layer, configuration, manifest].map(|blob| (Digest::of(&blob), blob)).into();
        let sizes = contents.iter().map(|(digest, blob)| (*digest, blob.len() as u64)).collect();
        layout::write(archive, &[written], &sizes, |blob| {
            contents.get(&blob).map(Vec::as_slice).ok_or_else(|| io::ErrorKind::NotFound.into())
        })
    }

    fn write_layer(&self) -> io::Result<Vec<u8>> {
        let mut layer = Builder::new(Vec::new());
        for (path, entry) in &self.entries {
            let path = path.trim_start_matches('/');
            match entry {
                Entry::Directory { mode } => {
                    let mut header = layout::header(EntryType::Directory, *mode, 0);
                    layer.append_data(&mut header, path, io::empty())?;
                }
                Entry::File { mode, content } => {
                    let size = content.len() as u64;
                    let mut header = layout::header(EntryType::Regular, *mode, size);
                    layer.append_data(&mut header, path, content.as_slice())?;
                }
                Entry::Symlink { target } => {
                    let mut header = layout::header(EntryType::Symlink, 0o777, 0);
                    layer.append_link(&mut header, path, target)?;
                }
            }
        }
        layer.into_inner()
    }

    fn configuration(&self, diff: Digest) -> oci_spec::Result<ImageConfiguration> {
        let given = |list: &[String]| (!list.is_empty()).then(|| list.to_vec());
        let mut config = ConfigBuilder::default();
        if let Some(entrypoint) = given(&self.entrypoint) {
            config = config.entrypoint(entrypoint);
        }
        if let Some(command) = given(&self.command) {
            config = config.cmd(command);
        }
        if let Some(environment) = given(&self.environment) {
            config = config.env(environment);
        }
        if let Some(user) = &self.user {
            config = config.user(user.clone());
        }
        if let Some(directory) = &self.working_directory {
            config = config.working_dir(directory.clone());
        }
        let files =
            RootFsBuilder::default().typ("layers").diff_ids(vec![diff.to_string()]).build()?;
        ImageConfigurationBuilder::default()
            .architecture(Arch::default())
            .os(Os::Linux)
            .config(config.build()?)
            .rootfs(files)
            .build()
    }
}

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

fn owned(arguments: &[&str]) -> Vec<String> {
    arguments.iter().map(ToString::to_string).collect()
}
