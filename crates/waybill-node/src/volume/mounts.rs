//! What the runtime is to mount into one container.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use k8s_openapi::api::core::v1::VolumeMount;
use waybill_core::env::{
    expand::{ExpandError, expand},
    limits::KERNEL_PATH_BYTES,
    merge::{Entry, Environment},
};
use waybill_proto::cri::{ImageSpec, Mount, MountPropagation};

use super::{
    blocking,
    error::{VolumeError, VolumeFault},
    kind::{Kind, check_name},
    sub_path,
};
use crate::{
    directories::Directories,
    pod::{ContainerRef, Pod},
};

/// Images that are volumes, as the runtime knows them, by the names of the volumes.
pub(crate) type VolumeImages = BTreeMap<String, ImageSpec>;

/// What the mounts of one container depend on.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) directories: &'a Directories,
    pub(super) pod: &'a Pod,
    pub(super) environment: &'a Environment,
    pub(super) images: &'a VolumeImages,
}

pub(super) async fn mounts(
    place: Place<'_>,
    container: ContainerRef<'_>,
) -> Result<Vec<Mount>, VolumeError> {
    let mut mounts = Vec::new();
    for (index, mount) in container.volume_mounts().iter().enumerate() {
        let made = one(place, container.name(), index, mount).await;
        mounts.push(made.map_err(|fault| VolumeError::Mount {
            volume: mount.name.clone(),
            container: container.name().to_owned(),
            fault,
        })?);
    }
    Ok(mounts)
}

async fn one(
    Place { directories, pod, environment, images }: Place<'_>,
    container: &str,
    index: usize,
    mount: &VolumeMount,
) -> Result<Mount, VolumeFault> {
    check_name(container)?;
    let unknown =
        || VolumeFault::Unknown { volume: mount.name.clone(), container: container.to_owned() };
    let mut volumes = pod.spec().volumes.iter().flatten();
    let volume = volumes.find(|volume| volume.name == mount.name).ok_or_else(unknown)?;
    let kind = Kind::of(volume)?;
    let root = match kind {
        Kind::HostPath(source) => PathBuf::from(&source.path),
        Kind::Image => {
            let image = images.get(&volume.name).ok_or_else(unknown)?;
            return image_mount(mount, image, sub_path_of(mount, environment)?);
        }
        _ => directories.volume(pod.uid(), kind.word(), &volume.name),
    };
    let host_path = match sub_path_of(mount, environment)? {
        None => root,
        Some(sub_path) => {
            let place =
                sub_paths(directories, pod, &volume.name, container).join(index.to_string());
            let target = place.clone();
            blocking(move || sub_path::bind(&root, &sub_path, &target)).await?;
            place
        }
    };
    let host_path = host_path.to_str().map(ToOwned::to_owned);
    let not_text = || VolumeFault::Path {
        path: mount.mount_path.clone(),
        why: "the node's directory is not UTF-8",
    };
    Ok(Mount {
        container_path: absolute(&mount.mount_path),
        host_path: host_path.ok_or_else(not_text)?,
        // What the node writes, containers only read.
        readonly: mount.read_only == Some(true) || kind.is_written(),
        propagation: propagation(mount)?.into(),
        recursive_read_only: mount.recursive_read_only.as_deref() == Some("Enabled"),
        ..Mount::default()
    })
}

/// The files of an image are read by containers and written by nobody. The runtime looks the part up, inside the image.
fn image_mount(
    mount: &VolumeMount,
    image: &ImageSpec,
    sub_path: Option<String>,
) -> Result<Mount, VolumeFault> {
    Ok(Mount {
        container_path: absolute(&mount.mount_path),
        image: Some(image.clone()),
        image_sub_path: sub_path.unwrap_or_default(),
        readonly: true,
        propagation: propagation(mount)?.into(),
        recursive_read_only: mount.recursive_read_only.as_deref() == Some("Enabled"),
        ..Mount::default()
    })
}

/// Takes the parts of volumes away that were put where the runtime finds them: the container has them, or
/// will not have them.
pub(super) async fn release(
    directories: &Directories,
    pod: &Pod,
    container: ContainerRef<'_>,
) -> Result<(), VolumeFault> {
    for mount in container.volume_mounts() {
        let directory = sub_paths(directories, pod, &mount.name, container.name());
        blocking(move || sub_path::release(&directory)).await?;
    }
    Ok(())
}

fn sub_paths(directories: &Directories, pod: &Pod, volume: &str, container: &str) -> PathBuf {
    directories.pod(pod.uid()).join("volume-subpaths").join(volume).join(container)
}

/// The part of the volume that is wanted, if it is not all of it.
fn sub_path_of(
    mount: &VolumeMount,
    environment: &Environment,
) -> Result<Option<String>, VolumeFault> {
    let some = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let path = match some(&mount.sub_path_expr) {
        None => some(&mount.sub_path),
        Some(expression) => Some(expand_path(&expression, environment)?),
    };
    if let Some(path) = &path {
        sub_path::check(path)?;
    }
    Ok(path)
}

/// Every variable must be there and must not be empty, as for kubelets. A path is written to disk, so it
/// cannot hold what must not be.
fn expand_path(expression: &str, environment: &Environment) -> Result<String, VolumeFault> {
    let missing = RefCell::new(BTreeSet::new());
    let look_up = |name: &[u8]| {
        let value = environment.get(name).map(Entry::value);
        if value.is_none_or(|value| value.is_empty()) {
            missing.borrow_mut().insert(String::from_utf8_lossy(name).into_owned());
        }
        value
    };
    let unfit = |why| VolumeFault::Path { path: expression.to_owned(), why };
    let expanded = expand(expression.as_bytes(), look_up, KERNEL_PATH_BYTES).map_err(|error| {
        unfit(match error {
            ExpandError::TooLong { .. } => "the expanded path is longer than 4095 bytes",
            ExpandError::Value(_) => "a path cannot contain NUL",
        })
    })?;
    let missing = missing.into_inner();
    if !missing.is_empty() {
        let names = missing.into_iter().collect::<Vec<_>>().join(", ");
        return Err(VolumeFault::MissingVariable { names });
    }
    if expanded.is_secret() {
        return Err(VolumeFault::SecretPath);
    }
    let path = std::str::from_utf8(expanded.expose());
    path.map(ToOwned::to_owned).map_err(|_| unfit("the expanded path is not UTF-8"))
}

fn absolute(path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

fn propagation(mount: &VolumeMount) -> Result<MountPropagation, VolumeFault> {
    Ok(match mount.mount_propagation.as_deref().unwrap_or_default() {
        "" | "None" => MountPropagation::PropagationPrivate,
        "HostToContainer" => MountPropagation::PropagationHostToContainer,
        "Bidirectional" => MountPropagation::PropagationBidirectional,
        other => {
            let value = other.to_owned();
            return Err(VolumeFault::Unsupported { what: "mountPropagation", value });
        }
    })
}
