//! What is mounted in a container: what every container has, what its sandbox gives, what the request adds.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use oci_spec::runtime::{LinuxIdMapping, LinuxIdMappingBuilder, Mount, MountBuilder};
use waybill_proto::cri::{self, MountPropagation};

use super::{rootfs::Rootfs, sharing::Sharing, user_namespace};
use crate::{
    IdMap,
    cri::{
        error::{CriError, Result},
        machine::Machine,
    },
    engine::EMULATED_IN_PROC,
};

const DEV: &str = "/dev";
/// Where clients mount a file for a container's last words, as their annotation says.
const LAST_WORDS: &str = "io.kubernetes.container.terminationMessagePath";
/// Files that a sandbox has, or its client in their place. They are read, and sometimes written, and never run.
const NAMES: [&str; 3] = ["/etc/hostname", "/etc/hosts", "/etc/resolv.conf"];
/// For what holds no programs and no devices.
const INERT: [&str; 3] = ["nosuid", "noexec", "nodev"];

/// Mounts in the order in which they are made, and how the root passes them on.
#[derive(Debug)]
pub(super) struct Mounts {
    pub(super) all: Vec<Mount>,
    /// Of the root; `None` keeps what the OCI runtime prefers.
    pub(super) propagation: Option<&'static str>,
}

/// Files and directories that a sandbox shares with its containers.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    pub(crate) shm: PathBuf,
    pub(crate) hostname: PathBuf,
    pub(crate) hosts: PathBuf,
    pub(crate) resolv_conf: PathBuf,
}

pub(super) struct Request<'a> {
    pub(super) mounts: &'a [cri::Mount],
    /// Beside the mounts: where those are that have no host path.
    pub(super) sources: &'a [Option<PathBuf>],
    pub(super) annotations: &'a BTreeMap<String, String>,
    pub(super) shared: &'a Shared,
    pub(super) privileged: bool,
    pub(super) read_only_root: bool,
    /// The ids of the container's users on the machine, if those are not the machine's.
    pub(super) users: Option<IdMap>,
}

pub(super) fn mounts(request: &Request<'_>, machine: &Machine) -> Result<Mounts> {
    let sharing = Sharing::of_this_process()?;
    let mut volumes = Vec::with_capacity(request.mounts.len());
    let mut propagation = None;
    let sources = request.sources.iter().map(Option::as_deref).chain(std::iter::repeat(None));
    for (mount, source) in request.mounts.iter().zip(sources) {
        let mut made = volume(mount, source, &sharing, machine)?;
        forbid_programs(&mut made, request.annotations);
        check_propagation(mount, request.users)?;
        // The files of an image were mapped when it was mounted.
        if user_namespace::is_mapped(mount, request.users)? && source.is_none() {
            let map = request.users.map(id_mappings).transpose()?;
            made.set_uid_mappings(map.clone()).set_gid_mappings(map);
        }
        volumes.push(made);
        propagation = match (mount.propagation(), propagation) {
            (MountPropagation::PropagationBidirectional, _) => Some("shared"),
            (MountPropagation::PropagationHostToContainer, None) => Some("slave"),
            (_, before) => before,
        };
    }
    let mut all = system(request.privileged)?;
    all.extend(of_the_sandbox(request.shared, request.read_only_root)?);
    // The request's own mount of a place takes the place of ours. One on `/dev` comes over it: libcontainer
    // makes devices there, and must not do so in a volume.
    all.retain(|mount| {
        mount.destination() == Path::new(DEV)
            || volumes.iter().all(|other| other.destination() != mount.destination())
    });
    // What lies deeper comes later, or it would be hidden.
    volumes.sort_by_key(|mount| mount.destination().components().count());
    all.extend(volumes);
    Ok(Mounts { all, propagation })
}

/// File systems that every container has.
fn system(privileged: bool) -> Result<Vec<Mount>> {
    let access = if privileged { "rw" } else { "ro" };
    let safe = INERT;
    Ok(vec![
        mount("/proc", "proc", "proc", &safe)?,
        mount("/dev", "tmpfs", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"])?,
        mount(
            "/dev/pts",
            "devpts",
            "devpts",
            &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"],
        )?,
        mount("/dev/mqueue", "mqueue", "mqueue", &safe)?,
        mount("/sys", "sysfs", "sysfs", &[&safe[..], &[access]].concat())?,
        mount("/sys/fs/cgroup", "cgroup", "cgroup", &[&safe[..], &["relatime", access]].concat())?,
    ])
}

fn of_the_sandbox(shared: &Shared, read_only_root: bool) -> Result<Vec<Mount>> {
    let access = if read_only_root { "ro" } else { "rw" };
    let bound = |inside: &str, path: &Path, access| {
        mount(inside, "bind", path, &[&["rbind", "rprivate"], &INERT[..], &[access]].concat())
    };
    let [hostname, hosts, resolv_conf] = NAMES;
    Ok(vec![
        bound("/dev/shm", &shared.shm, "rw")?,
        bound(hostname, &shared.hostname, access)?,
        bound(hosts, &shared.hosts, access)?,
        bound(resolv_conf, &shared.resolv_conf, access)?,
    ])
}

/// Kubelets mount files of their own over some of ours, and one for last words. Containers write them, and nothing that is left in one
/// is to be run with the rights of whoever left it. Volumes are not touched.
fn forbid_programs(mount: &mut Mount, annotations: &BTreeMap<String, String>) {
    let inside = mount.destination();
    let last_words = annotations.get(LAST_WORDS).map(|path| Path::new("/").join(path));
    let is_meant = NAMES.iter().any(|name| inside == Path::new(name))
        || last_words.is_some_and(|path| *inside == path);
    let is_file = mount.source().as_deref().is_some_and(Path::is_file);
    if is_meant && is_file {
        let options = mount.options().iter().flatten().cloned();
        let options = options.chain(INERT.map(str::to_owned)).collect();
        mount.set_options(Some(options));
    }
}

/// A mount of the request, whose files are at `source` if it has no host path.
fn volume(
    mount_request: &cri::Mount,
    source: Option<&Path>,
    sharing: &Sharing,
    machine: &Machine,
) -> Result<Mount> {
    let inside = &mount_request.container_path;
    if inside.is_empty() || Path::new(inside).components().any(|it| it.as_os_str() == "..") {
        return Err(CriError::invalid(format!(
            "container_path {inside:?} of a mount is not a path"
        )));
    }
    check_supported(mount_request, machine)?;
    let source = match source {
        Some(source) => source.to_owned(),
        None => host_path(mount_request)?,
    };
    let propagation = match mount_request.propagation() {
        MountPropagation::PropagationPrivate => "rprivate",
        MountPropagation::PropagationHostToContainer => {
            sharing.check_receives(&source)?;
            "rslave"
        }
        MountPropagation::PropagationBidirectional => {
            sharing.check_shared(&source)?;
            "rshared"
        }
    };
    let access = match (mount_request.readonly, mount_request.recursive_read_only) {
        (_, true) => "rro",
        (true, false) => "ro",
        (false, false) => "rw",
    };
    mount(Path::new("/").join(inside), "bind", source, &["rbind", propagation, access])
}

/// What is mounted in a user namespace stays there.
fn check_propagation(mount: &cri::Mount, users: Option<IdMap>) -> Result<()> {
    let leaves = mount.propagation() == MountPropagation::PropagationBidirectional;
    if leaves && users.is_some() {
        let advice = format!(
            "mount {:?} with None or HostToContainer, or set hostUsers to true",
            mount.container_path
        );
        return Err(CriError::unsupported(
            "bidirectional propagation out of a user namespace",
            advice,
        ));
    }
    Ok(())
}

/// The range as specifications have it.
pub(super) fn id_mappings(map: IdMap) -> Result<Vec<LinuxIdMapping>> {
    let builder = LinuxIdMappingBuilder::default().container_id(0_u32);
    Ok(vec![builder.host_id(map.root()).size(map.length()).build()?])
}

fn host_path(mount_request: &cri::Mount) -> Result<PathBuf> {
    let path = &mount_request.host_path;
    if !Path::new(path).is_absolute() {
        return Err(CriError::invalid(format!("host_path {path:?} of a mount is not absolute")));
    }
    fs::canonicalize(path).map_err(CriError::io("find the host path of a mount", path))
}

/// Refuses mounts below `/proc`, and other things than a `/proc` at `/proc`, as runc does: we and others believe what is written there,
/// and what is written to `/proc/self/attr` must take effect. Links of the image are followed.
pub(crate) fn check_destinations(rootfs: &Rootfs, mounts: &[cri::Mount]) -> Result<()> {
    for mount in mounts {
        let inside = Path::new("/").join(&mount.container_path);
        let reached = rootfs
            .resolve(&inside)
            .map_err(CriError::io("follow the container path of a mount", &inside))?;
        let Ok(below) = reached.strip_prefix("/proc") else { continue };
        let allowed = match below.to_str() {
            Some("") => is_proc(&mount.host_path),
            below => below.is_some_and(|below| EMULATED_IN_PROC.contains(&below)),
        };
        if !allowed {
            return Err(CriError::invalid(format!(
                "{inside:?} cannot be mounted because it is inside /proc; mount it elsewhere"
            )));
        }
    }
    Ok(())
}

fn is_proc(host_path: &str) -> bool {
    const PROC_SUPER_MAGIC: i128 = 0x9fa0;
    let found = rustix::fs::statfs(host_path);
    found.is_ok_and(|found| i128::from(found.f_type) == PROC_SUPER_MAGIC)
        && Path::new(host_path).join("self").is_symlink()
}

fn check_supported(mount: &cri::Mount, machine: &Machine) -> Result<()> {
    let at = &mount.container_path;
    // Kubelets ask for it on every machine; without SELinux there is no label to change.
    if mount.selinux_relabel && machine.selinux {
        let advice = format!("label the host path of {at:?} beforehand");
        return Err(CriError::unsupported("relabelling of a mount", advice));
    }
    if mount.recursive_read_only {
        if !mount.readonly || mount.propagation() != MountPropagation::PropagationPrivate {
            let reason = format!(
                "mount {at:?}: recursive_read_only needs readonly, and private propagation"
            );
            return Err(CriError::invalid(reason));
        }
        if !machine.recursive_read_only {
            let advice = format!("mount {at:?} without it, or use Linux 5.12 or newer");
            return Err(CriError::unsupported("recursive_read_only", advice));
        }
    }
    Ok(())
}

fn mount(
    inside: impl Into<PathBuf>,
    kind: &str,
    source: impl Into<PathBuf>,
    options: &[&str],
) -> Result<Mount> {
    let options: Vec<_> = options.iter().map(|&option| option.to_owned()).collect();
    let builder = MountBuilder::default().destination(inside).typ(kind).source(source);
    Ok(builder.options(options).build()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared() -> Shared {
        let file = |name: &str| PathBuf::from("/run/s").join(name);
        Shared {
            shm: file("shm"),
            hostname: file("hostname"),
            hosts: file("hosts"),
            resolv_conf: file("resolv.conf"),
        }
    }

    fn at(inside: &str) -> cri::Mount {
        cri::Mount { container_path: inside.into(), host_path: "/tmp".into(), ..Default::default() }
    }

    fn built(volumes: &[cri::Mount]) -> Result<Mounts> {
        let shared = shared();
        let request = Request {
            mounts: volumes,
            sources: &[],
            annotations: &BTreeMap::new(),
            shared: &shared,
            privileged: false,
            read_only_root: false,
            users: None,
        };
        mounts(&request, &Machine::plain())
    }

    fn find<'a>(mounts: &'a Mounts, inside: &str) -> &'a Mount {
        mounts.all.iter().find(|it| it.destination() == Path::new(inside)).unwrap()
    }

    fn options(mount: &Mount) -> Vec<&str> {
        mount.options().as_ref().unwrap().iter().map(String::as_str).collect()
    }

    #[test]
    fn every_container_has_the_file_systems_of_the_system() {
        let mounts = built(&[]).unwrap();
        for inside in ["/proc", "/dev", "/dev/pts", "/dev/shm", "/sys", "/etc/hosts"] {
            find(&mounts, inside);
        }
        assert!(options(find(&mounts, "/sys")).contains(&"ro"));
        assert_eq!(find(&mounts, "/dev/shm").source().as_deref(), Some(Path::new("/run/s/shm")));
        assert_eq!(mounts.propagation, None);
    }

    #[test]
    fn the_request_takes_the_place_of_ours_and_depth_decides_the_order() {
        let mounts = built(&[at("/a/b/c"), at("/etc/hosts"), at("/a")]).unwrap();
        let order: Vec<_> = mounts.all.iter().map(|it| it.destination().as_path()).collect();
        let place = |inside: &str| order.iter().position(|it| *it == Path::new(inside)).unwrap();
        assert!(place("/a") < place("/a/b/c"));
        assert_eq!(order.iter().filter(|it| **it == Path::new("/etc/hosts")).count(), 1);
        assert_eq!(find(&mounts, "/etc/hosts").source().as_deref(), Some(Path::new("/tmp")));
    }

    #[test]
    fn files_of_the_client_hold_no_programs_and_volumes_may() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "").unwrap();
        let from = |source: &Path, inside: &str| cri::Mount {
            host_path: source.display().to_string(),
            ..at(inside)
        };
        let volumes = [
            from(&file, "/etc/hosts"),
            from(&file, "/dev/termination-log"),
            from(&file, "/etc/other"),
            from(directory.path(), "/etc/hostname"),
            from(directory.path(), "/data"),
        ];
        let annotations = [(LAST_WORDS.to_owned(), "/dev/termination-log".to_owned())].into();
        let shared = shared();
        let request = Request {
            mounts: &volumes,
            sources: &[],
            annotations: &annotations,
            shared: &shared,
            privileged: false,
            read_only_root: false,
            users: None,
        };
        let mounts = mounts(&request, &Machine::plain()).unwrap();
        for (inside, inert) in [
            ("/etc/hosts", true),
            ("/dev/termination-log", true),
            ("/etc/resolv.conf", true),
            ("/dev/shm", true),
            ("/etc/other", false),
            ("/etc/hostname", false),
            ("/data", false),
        ] {
            let options = options(find(&mounts, inside));
            assert_eq!(INERT.iter().all(|it| options.contains(it)), inert, "{inside}");
            assert_eq!(INERT.iter().any(|it| options.contains(it)), inert, "{inside}");
        }
    }

    #[test]
    fn read_only_means_read_only() {
        let read_only = cri::Mount { readonly: true, ..at("/a") };
        let recursive =
            cri::Mount { recursive_read_only: true, ..cri::Mount { readonly: true, ..at("/b") } };
        let mounts = built(&[read_only, recursive, at("/c")]).unwrap();
        assert_eq!(options(find(&mounts, "/a")), ["rbind", "rprivate", "ro"]);
        assert_eq!(options(find(&mounts, "/b")), ["rbind", "rprivate", "rro"]);
        assert_eq!(options(find(&mounts, "/c")), ["rbind", "rprivate", "rw"]);
    }

    #[test]
    fn an_image_has_no_host_path() {
        let image = cri::Mount { host_path: String::new(), readonly: true, ..at("/a") };
        let (shared, sources) = (shared(), [Some(PathBuf::from("/run/images/0"))]);
        let request = Request {
            mounts: &[image],
            sources: &sources,
            annotations: &BTreeMap::new(),
            shared: &shared,
            privileged: false,
            read_only_root: false,
            users: None,
        };
        let mounts = mounts(&request, &Machine::plain()).unwrap();
        assert_eq!(find(&mounts, "/a").source().as_deref(), Some(Path::new("/run/images/0")));
        assert_eq!(options(find(&mounts, "/a")), ["rbind", "rprivate", "ro"]);
    }

    #[test]
    fn a_read_only_root_has_read_only_files_of_the_sandbox() {
        let shared = shared();
        let request = Request {
            mounts: &[],
            sources: &[],
            annotations: &BTreeMap::new(),
            shared: &shared,
            privileged: true,
            read_only_root: true,
            users: None,
        };
        let mounts = mounts(&request, &Machine::plain()).unwrap();
        assert!(options(find(&mounts, "/etc/hosts")).contains(&"ro"));
        assert!(options(find(&mounts, "/dev/shm")).contains(&"rw"));
        assert!(options(find(&mounts, "/sys")).contains(&"rw"));
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        let cases = [
            cri::Mount { host_path: "/does/not/exist".into(), ..at("/a") },
            cri::Mount { host_path: "tmp".into(), ..at("/a") },
            at(""),
            at("/a/../b"),
            cri::Mount { recursive_read_only: true, ..at("/a") },
            cri::Mount { uid_mappings: vec![cri::IdMapping::default()], ..at("/a") },
        ];
        for case in cases {
            assert!(built(std::slice::from_ref(&case)).is_err(), "{case:?}");
        }
    }

    /// Volumes over `/proc/1`, `/proc/sys` and `/proc/self/attr` were accepted.
    #[test]
    fn nothing_is_mounted_inside_proc() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("srv/deep")).unwrap();
        std::os::unix::fs::symlink("../../proc", root.path().join("srv/deep/link")).unwrap();
        std::os::unix::fs::symlink("/proc/self", root.path().join("own")).unwrap();
        std::os::unix::fs::symlink("loop", root.path().join("loop")).unwrap();
        let rootfs = Rootfs::open(root.path()).unwrap();
        let check = |mount| check_destinations(&rootfs, std::slice::from_ref(&mount)).is_ok();
        for inside in [
            "/proc",
            "/proc/",
            "//proc/./1",
            "/proc/sys",
            "/proc/self/attr",
            "/srv/deep/link/1",
            "/srv/deep/link",
            "/own/attr",
            "proc/1",
            "/loop/a",
        ] {
            assert!(!check(at(inside)), "{inside}");
        }
        for inside in ["/process", "/srv/proc", "/srv/deep/new/place", "/proc/meminfo", "/sys/x"] {
            assert!(check(at(inside)), "{inside}");
        }
        assert!(check(cri::Mount { host_path: "/proc".into(), ..at("/proc") }));
        assert!(!check(cri::Mount { host_path: "/proc/sys".into(), ..at("/proc") }));
    }

    #[test]
    fn relabelling_is_refused_where_labels_exist() {
        let relabel = cri::Mount { selinux_relabel: true, ..at("/a") };
        assert!(check_supported(&relabel, &Machine::plain()).is_ok());
        let machine = Machine { selinux: true, ..Machine::plain() };
        assert!(check_supported(&relabel, &machine).is_err());
    }
}
