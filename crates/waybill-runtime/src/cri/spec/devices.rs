//! Devices in a container, and what its device cgroup allows.

use std::{
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

use oci_spec::runtime::{
    LinuxDevice, LinuxDeviceBuilder, LinuxDeviceCgroup, LinuxDeviceCgroupBuilder, LinuxDeviceType,
};
use rustix::fs::{major, minor};
use waybill_proto::cri;

use crate::cri::error::{CriError, Result};

/// Entries of `/dev` that are no devices of the machine but file systems with a life of their own.
const NOT_DEVICES: &[&str] = &["console", "fd", "mqueue", "pts", "shm"];

/// Device nodes, and the rules that allow their use. The few that every container has, such as
/// `/dev/null`, are libcontainer's part.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Devices {
    pub(super) nodes: Vec<LinuxDevice>,
    pub(super) rules: Vec<LinuxDeviceCgroup>,
}

/// The devices that a request names; each path may be a device or a directory of devices.
pub(super) fn requested(devices: &[cri::Device]) -> Result<Devices> {
    let mut found = Devices { rules: vec![rule(false, "rwm", None)?], ..Devices::default() };
    for device in devices {
        let access = access(&device.permissions)?;
        let host = fs::canonicalize(&device.host_path)
            .map_err(CriError::io("find the device", &device.host_path))?;
        let inside = Path::new("/").join(&device.container_path);
        for (path, node) in nodes_at(&host, &inside)? {
            found.rules.push(rule(true, access, Some(&node))?);
            found.nodes.retain(|other| other.path() != &path);
            found.nodes.push(node);
        }
    }
    Ok(found)
}

/// All devices of the machine, and the right to use any: for a privileged container. Those that are `bound` instead of made cannot be
/// replaced, and `/dev/ptmx` has to be.
pub(super) fn of_the_machine(bound: bool) -> Result<Devices> {
    let mut nodes = nodes_at(Path::new("/dev"), Path::new("/dev"))?;
    nodes.retain(|(path, _)| !bound || path != Path::new("/dev/ptmx"));
    Ok(Devices {
        nodes: nodes.into_iter().map(|(_, node)| node).collect(),
        rules: vec![rule(true, "rwm", None)?],
    })
}

/// Any of r, w and m; all of them if nothing is said.
fn access(permissions: &str) -> Result<&str> {
    match permissions {
        "" => Ok("rwm"),
        some if some.chars().all(|c| "rwm".contains(c)) => Ok(some),
        other => {
            Err(CriError::invalid(format!("device permissions {other:?}: use any of r, w and m")))
        }
    }
}

fn rule(allow: bool, access: &str, node: Option<&LinuxDevice>) -> Result<LinuxDeviceCgroup> {
    let builder = LinuxDeviceCgroupBuilder::default().allow(allow).access(access);
    let builder = match node {
        Some(node) => builder.typ(node.typ()).major(node.major()).minor(node.minor()),
        None => builder.typ(LinuxDeviceType::A),
    };
    Ok(builder.build()?)
}

/// The device at `host`, or those below it, as nodes at or below `inside`.
fn nodes_at(host: &Path, inside: &Path) -> Result<Vec<(PathBuf, LinuxDevice)>> {
    let metadata = fs::metadata(host).map_err(CriError::io("inspect", host))?;
    if !metadata.is_dir() {
        let node = node(host, inside, &metadata)?
            .ok_or_else(|| CriError::invalid(format!("{} is not a device", host.display())))?;
        return Ok(vec![(inside.to_owned(), node)]);
    }
    let mut nodes = Vec::new();
    walk(host, inside, &mut nodes)?;
    Ok(nodes)
}

fn walk(host: &Path, inside: &Path, nodes: &mut Vec<(PathBuf, LinuxDevice)>) -> Result<()> {
    for entry in fs::read_dir(host).map_err(CriError::io("list", host))? {
        let entry = entry.map_err(CriError::io("list", host))?;
        let name = entry.file_name();
        if NOT_DEVICES.iter().any(|other| name == *other) {
            continue;
        }
        let (path, inside) = (entry.path(), inside.join(&name));
        // Links are left out: what they lead to is found by itself.
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        if metadata.is_dir() {
            walk(&path, &inside, nodes)?;
        } else if let Some(node) = node(&path, &inside, &metadata)? {
            nodes.push((inside, node));
        }
    }
    Ok(())
}

fn node(host: &Path, inside: &Path, metadata: &fs::Metadata) -> Result<Option<LinuxDevice>> {
    let typ = match metadata.file_type() {
        typ if typ.is_char_device() => LinuxDeviceType::C,
        typ if typ.is_block_device() => LinuxDeviceType::B,
        _ => return Ok(None),
    };
    if inside.file_name().is_none() {
        let reason = format!("device {} needs a path inside the container", host.display());
        return Err(CriError::invalid(reason));
    }
    let device = LinuxDeviceBuilder::default()
        .path(inside)
        .typ(typ)
        .major(major(metadata.rdev()))
        .minor(minor(metadata.rdev()))
        .file_mode(metadata.mode() & 0o7777)
        .uid(metadata.uid())
        .gid(metadata.gid())
        .build()?;
    Ok(Some(device))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(host: &str, inside: &str, permissions: &str) -> cri::Device {
        cri::Device {
            host_path: host.into(),
            container_path: inside.into(),
            permissions: permissions.into(),
        }
    }

    #[test]
    fn without_a_request_everything_is_denied() {
        let devices = requested(&[]).unwrap();
        assert!(devices.nodes.is_empty());
        assert_eq!(devices.rules.len(), 1);
        assert_eq!(
            (devices.rules[0].allow(), devices.rules[0].to_string()),
            (false, "a *:* rwm".into())
        );
    }

    #[test]
    fn a_device_is_made_and_allowed_as_asked() {
        let devices = requested(&[device("/dev/zero", "/dev/mine", "r")]).unwrap();
        let node = &devices.nodes[0];
        assert_eq!(node.path(), Path::new("/dev/mine"));
        assert_eq!((node.major(), node.minor()), (1, 5));
        assert_eq!(devices.rules[1].to_string(), "c 1:5 r");
        let twice = [device("/dev/zero", "/dev/x", ""), device("/dev/null", "/dev/x", "")];
        assert_eq!(requested(&twice).unwrap().nodes.len(), 1);
    }

    #[test]
    fn what_is_no_device_is_refused() {
        for wrong in [
            device("/etc/passwd", "/dev/x", "r"),
            device("/dev/none", "/dev/x", "r"),
            device("/dev/null", "/dev/x", "rx"),
            device("/dev/null", "", "r"),
        ] {
            assert!(requested(std::slice::from_ref(&wrong)).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_privileged_container_has_the_machines_devices() {
        let devices = of_the_machine(false).unwrap();
        assert!(devices.nodes.iter().any(|node| node.path() == Path::new("/dev/null")));
        assert!(devices.nodes.iter().all(|node| !node.path().starts_with("/dev/pts")));
        assert_eq!(devices.rules[0].to_string(), "a *:* rwm");
    }
}
