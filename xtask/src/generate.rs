//! `cargo xtask gen`: what is written from sources of others and committed, so that a build needs neither them nor this.
//!
//! Of the proto files it is the gRPC code of waybill-proto; protox compiles them here. Messages that
//! can hold a value of a variable, a credential or output of a process get no derived `Debug`; `debug.rs` of the crate has one
//! by hand for each. Of the kernel's headers it is the table of system calls. Of descriptions of Kubernetes and etcd that
//! crates of others carry it is what waybill-apiserver knows about messages (ADR 0058). Of the record of a run it is a picture.

mod calls;
mod etcd;
mod merges;
mod picture;
mod protobuf;
mod upstream;

use std::{fs, path::Path};

use anyhow::{Context, Result};

use self::upstream::Spelling;
use crate::{metadata, repository::Repository};

/// Whose lock file pins what is compiled.
const MANIFEST: &str = "Cargo.toml";
/// Whose lock file pins what is only read.
const READ_ONLY: &str = "xtask/sources/Cargo.toml";

const SOURCES: &str = "crates/waybill-proto/proto";
const OUTPUT: &str = "crates/waybill-proto/src/gen";

/// The version of Kubernetes whose schemas we serve, as `k8s-openapi` calls it.
const KUBERNETES: &str = "v1_37";

/// The files that no other imports; a change of the rest shows through them.
const ROOTS: &[&str] = &[
    "csi/v1/csi.proto",
    "pluginregistration/registration.proto",
    "runtime/v1/service.proto",
    "v1alpha1/provider.proto",
    "waybill/runtime/v1/runtime.proto",
];

const NO_DERIVED_DEBUG: &[&str] = &[
    ".csi.v1.EnvVarResult",
    ".csi.v1.NodeGetEnvVarsRequest",
    ".csi.v1.NodePublishVolumeRequest",
    ".runtime.v1.AuthConfig",
    ".runtime.v1.ExecSyncResponse",
    ".runtime.v1.KeyValue",
    ".v1alpha1.File",
    ".v1alpha1.MountRequest",
    ".waybill.runtime.v1.ExportResponse",
    ".waybill.runtime.v1.ImportRequest",
];

/// What the runtime remembers about sandboxes and containers, as JSON. The variables of a container
/// are left out there: records hold no value.
const SERIALIZED: &[&str] = &[
    "CDIDevice",
    "Capability",
    "ContainerConfig",
    "ContainerMetadata",
    "DNSConfig",
    "Device",
    "HugepageLimit",
    "IDMapping",
    "ImageSpec",
    "Int64Value",
    "LinuxContainerConfig",
    "LinuxContainerResources",
    "LinuxContainerSecurityContext",
    "LinuxPodSandboxConfig",
    "LinuxSandboxSecurityContext",
    "Mount",
    "NamespaceOption",
    "PodSandboxConfig",
    "PodSandboxMetadata",
    "PortMapping",
    "SELinuxOption",
    "SecurityProfile",
    "UserNamespace",
    "WindowsContainerConfig",
    "WindowsPodSandboxConfig",
];

const HEADER: &str =
    "//! Written by `cargo xtask gen` from the files in `proto/`; do not edit.\n\n";

pub(crate) fn run(repository: &Repository) -> Result<()> {
    for Generated { path, text } in generated(repository)? {
        let file = repository.path(&path);
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder)
                .with_context(|| format!("cannot make a folder for {path}"))?;
        }
        fs::write(file, text).with_context(|| format!("cannot write {path}"))?;
        println!("{path}");
    }
    Ok(())
}

/// The generated files whose committed text is another.
pub(crate) fn stale(repository: &Repository) -> Result<Vec<String>> {
    let differs = |file: &Generated| {
        fs::read_to_string(repository.path(&file.path)).ok().as_ref() != Some(&file.text)
    };
    Ok(generated(repository)?.into_iter().filter(differs).map(|file| file.path).collect())
}

/// A file that shall be there.
struct Generated {
    path: String,
    text: String,
}

fn generated(repository: &Repository) -> Result<Vec<Generated>> {
    let mut files = messages(repository)?;
    files.push(calls::generated(repository)?);
    files.push(etcd::generated(repository)?);
    files.push(picture::generated(repository)?);
    files.extend(kubernetes(repository)?);
    Ok(files)
}

/// What is made of the descriptions of Kubernetes.
fn kubernetes(repository: &Repository) -> Result<Vec<Generated>> {
    let (_, schema) = metadata::source_of(repository, MANIFEST, "k8s-openapi")?;
    let (version, source) = metadata::source_of(repository, READ_ONLY, "k8s-pb")?;
    let spelling = Spelling::read(&schema.join("src").join(KUBERNETES))?;
    let messages = upstream::messages(&source.join("src"))?;
    let mut files = protobuf::generated(&version, &messages, &spelling)?;
    files.extend(merges::generated(&version, &messages, &spelling)?);
    Ok(files)
}

fn messages(repository: &Repository) -> Result<Vec<Generated>> {
    let descriptors = protox::compile(ROOTS, [repository.path(SOURCES)])?;
    let scratch = tempfile::tempdir().context("cannot make a temporary folder")?;
    let serialized = SERIALIZED.iter().fold(tonic_prost_build::configure(), |builder, name| {
        let attribute = "#[derive(serde::Serialize, serde::Deserialize)]\n#[serde(default)]";
        builder.message_attribute(format!(".runtime.v1.{name}"), attribute)
    });
    serialized
        .field_attribute(".runtime.v1.ContainerConfig.envs", "#[serde(skip)]")
        .build_transport(false)
        .btree_map(".")
        .skip_debug(NO_DERIVED_DEBUG)
        .out_dir(scratch.path())
        .compile_fds(descriptors)
        .context("cannot generate code")?;
    read_all(scratch.path())
}

fn read_all(folder: &Path) -> Result<Vec<Generated>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = format!("{HEADER}{}", fs::read_to_string(&path)?);
        files.push(Generated { path: format!("{OUTPUT}/{name}"), text });
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_code_says_so_and_has_no_debug_for_values() {
        let files = messages(&Repository::here().unwrap()).unwrap();
        let cri = files.iter().find(|file| file.path.ends_with("/runtime.v1.rs")).unwrap();
        assert!(cri.text.starts_with("//! Written by `cargo xtask gen`"));
        assert!(cri.text.contains("#[prost(skip_debug)]\npub struct KeyValue"));
    }
}
