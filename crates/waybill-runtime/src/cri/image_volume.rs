//! Images as volumes of a container: the files of an image, without running it.
//!
//! Each is mounted below the container's directory so that nobody can write to it, and goes with the container. Its layers
//! are in use as long as that lasts, also when the image is removed.

use std::{
    fs, io,
    path::{Component, Path, PathBuf},
};

use rustix::mount::{MountPropagationFlags, mount_change};
use waybill_proto::cri::{self, MountPropagation};

use super::{
    Cri,
    error::{CriError, Result},
    spec::Rootfs,
};
use crate::{id_map::UserNamespace, image::Access};

/// Below a container's directory.
const VOLUMES: &str = "volumes";

impl Cri {
    /// Mounts the images among `mounts`, and notes in each which image it is. Returns where the files of each mount are,
    /// which is nowhere for those of host paths.
    pub(super) fn mount_images(
        &self,
        container: &str,
        mounts: &mut [cri::Mount],
        user: Option<&UserNamespace>,
    ) -> Result<Vec<Option<PathBuf>>> {
        let mount = |(number, mount): (usize, &mut cri::Mount)| match is_image(mount) {
            true => self.mount_image(container, number, mount, user).map(Some),
            false => Ok(None),
        };
        mounts.iter_mut().enumerate().map(mount).collect()
    }

    fn mount_image(
        &self,
        container: &str,
        number: usize,
        mount: &mut cri::Mount,
        user: Option<&UserNamespace>,
    ) -> Result<PathBuf> {
        check(mount)?;
        let spec = mount.image.get_or_insert_default();
        let image = self.images.resolve(&spec.image)?;
        spec.image_ref = image.id.to_string();
        let place = self.container_dir(container).join(VOLUMES).join(number.to_string());
        fs::create_dir_all(&place).map_err(CriError::io("make", &place))?;
        let id = store_id(container, number);
        self.images.mount_with(&image, &id, &place, Access::ReadOnly, user)?;
        // What is mounted there in the container must not appear out here.
        mount_change(&place, MountPropagationFlags::PRIVATE)
            .map_err(|error| CriError::io("make private", &place)(error.into()))?;
        below(&place, &mount.image_sub_path)
    }

    /// Unmounts the images of a container. Twice is fine.
    pub(super) fn unmount_images(&self, container: &str) -> Result<()> {
        let volumes = self.container_dir(container).join(VOLUMES);
        let numbers = numbers(&volumes).map_err(CriError::io("list", &volumes))?;
        for number in numbers {
            let place = volumes.join(number.to_string());
            self.images.unmount(&store_id(container, number), &place)?;
        }
        Ok(())
    }

    /// What the image store calls the root file system and the volumes of a container, also of one whose record cannot be read.
    pub(super) fn mounted_for(&self, container: String) -> Vec<String> {
        let volumes = self.container_dir(&container).join(VOLUMES);
        let numbers = numbers(&volumes).unwrap_or_default();
        let ids = numbers.into_iter().map(|number| store_id(&container, number));
        let mut ids: Vec<_> = ids.collect();
        ids.push(container);
        ids
    }
}

/// The volumes that lie there; none if there is no such directory.
fn numbers(volumes: &Path) -> io::Result<Vec<usize>> {
    let entries = match fs::read_dir(volumes) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let names = entries.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?;
    Ok(names.iter().filter_map(|name| name.to_str()?.parse().ok()).collect())
}

pub(super) fn is_image(mount: &cri::Mount) -> bool {
    mount.image.as_ref().is_some_and(|image| !image.image.is_empty())
}

fn store_id(container: &str, number: usize) -> String {
    format!("{container}.volume-{number}")
}

fn check(mount: &cri::Mount) -> Result<()> {
    let at = &mount.container_path;
    if !mount.readonly {
        let reason = format!("mount {at:?}: an image is mounted read-only; set readonly");
        return Err(CriError::invalid(reason));
    }
    if !mount.host_path.is_empty() {
        let reason = format!("mount {at:?} has an image and a host_path; leave one of them out");
        return Err(CriError::invalid(reason));
    }
    if mount.propagation() != MountPropagation::PropagationPrivate {
        let reason = format!("mount {at:?}: an image has private propagation only");
        return Err(CriError::invalid(reason));
    }
    let plain = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    if !Path::new(&mount.image_sub_path).components().all(plain) {
        let reason = format!(
            "mount {at:?}: image_sub_path {:?} is not a relative path without \"..\"",
            mount.image_sub_path
        );
        return Err(CriError::invalid(reason));
    }
    Ok(())
}

/// The place of `path` in the image at `root`. Links end inside the image, as they would if it ran.
fn below(root: &Path, path: &str) -> Result<PathBuf> {
    let inside = Rootfs::open(root).map_err(CriError::io("open", root))?;
    let reached = inside
        .resolve(Path::new(path))
        .map_err(CriError::io("follow the image_sub_path of a mount", path))?;
    let found = root.join(reached.strip_prefix("/").unwrap_or(&reached));
    match fs::symlink_metadata(&found) {
        Ok(_) => Ok(found),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(CriError::invalid(format!("the image of a mount has no image_sub_path {path:?}")))
        }
        Err(error) => Err(CriError::io("find the image_sub_path of a mount", path)(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image() -> cri::Mount {
        let spec = cri::ImageSpec { image: "a".into(), ..Default::default() };
        cri::Mount {
            container_path: "/a".into(),
            readonly: true,
            image: Some(spec),
            ..Default::default()
        }
    }

    #[test]
    fn what_an_image_cannot_be_mounted_as_is_refused() {
        check(&image()).unwrap();
        check(&cri::Mount { image_sub_path: "a/./b".into(), ..image() }).unwrap();
        let shared = MountPropagation::PropagationBidirectional.into();
        let cases = [
            cri::Mount { readonly: false, ..image() },
            cri::Mount { host_path: "/tmp".into(), ..image() },
            cri::Mount { propagation: shared, ..image() },
            cri::Mount { image_sub_path: "../etc".into(), ..image() },
            cri::Mount { image_sub_path: "/etc".into(), ..image() },
        ];
        for case in cases {
            assert!(check(&case).is_err(), "{case:?}");
        }
    }

    #[test]
    fn links_of_an_image_do_not_lead_out_of_it() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("etc/inside")).unwrap();
        std::os::unix::fs::symlink("/etc", root.path().join("link")).unwrap();
        std::os::unix::fs::symlink("../../../..", root.path().join("up")).unwrap();
        let reached = |path| below(root.path(), path).map(|it| it.display().to_string()).ok();
        let at = |path| Some(root.path().join(path).display().to_string());
        assert_eq!(reached(""), at(""));
        assert_eq!(reached("link/inside"), at("etc/inside"));
        assert_eq!(reached("up/etc"), at("etc"));
        assert_eq!(reached("link/passwd"), None);
    }
}
