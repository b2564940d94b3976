//! What containers of a sandbox share as files: names, resolver, shared memory.
//!
//! Containers may write all of it, so all of it lies on a small file system of the sandbox's own: what fills up is the sandbox's,
//! and never the run directory, where the records of everybody are.

use std::{
    fs, io,
    os::unix::fs::{PermissionsExt, chown, symlink},
    path::Path,
};

use rustix::{
    io::Errno,
    mount::{MountFlags, UnmountFlags, mount, unmount},
};
use waybill_proto::cri::{DnsConfig, NamespaceMode, PodSandboxConfig};

use super::{
    error::{CriError, Result},
    spec::Shared,
};

/// Where the file system is mounted, in the sandbox's directory.
const MOUNT: &str = "shm";
/// What of it is shared memory, and what the names are in.
const MEMORY: &str = "shm";
const NAMES: &str = "etc";
const HOSTNAME: &str = "hostname";
const HOSTS: &str = "hosts";
const RESOLV_CONF: &str = "resolv.conf";

/// As large as everywhere else. The mode is for older runtimes, which take the whole for shared memory.
const SHM_OPTIONS: &std::ffi::CStr = c"mode=1777,size=67108864";

/// How a sandbox stands to the machine, as far as its files show it.
pub(crate) struct Isolation {
    pub(crate) network: NamespaceMode,
    pub(crate) ipc: NamespaceMode,
    /// Who is root in the sandbox, as the machine counts.
    pub(crate) owner: u32,
}

/// Where a sandbox's files are.
pub(crate) fn shared(directory: &Path, ipc: NamespaceMode) -> Shared {
    let mounted = directory.join(MOUNT);
    let names = mounted.join(NAMES);
    if !names.is_dir() {
        return shared_as_before(directory, ipc);
    }
    Shared {
        shm: if ipc == NamespaceMode::Node { "/dev/shm".into() } else { mounted.join(MEMORY) },
        hostname: names.join(HOSTNAME),
        hosts: names.join(HOSTS),
        resolv_conf: names.join(RESOLV_CONF),
    }
}

/// The same for a sandbox of an older runtime, in which only shared memory has a file system of its own.
fn shared_as_before(directory: &Path, ipc: NamespaceMode) -> Shared {
    Shared {
        shm: if ipc == NamespaceMode::Node { "/dev/shm".into() } else { directory.join(MOUNT) },
        hostname: directory.join(HOSTNAME),
        hosts: directory.join(HOSTS),
        resolv_conf: directory.join(RESOLV_CONF),
    }
}

/// Mounts the file system of a sandbox and writes its files.
pub(crate) fn make(
    directory: &Path,
    config: &PodSandboxConfig,
    hostname: &str,
    isolation: &Isolation,
) -> Result<()> {
    let resolv_conf = match config.dns_config.as_ref().map(resolv_conf).transpose()?.flatten() {
        Some(text) => text,
        None => of_the_machine("/etc/resolv.conf")?,
    };
    let hosts = if isolation.network == NamespaceMode::Node {
        of_the_machine("/etc/hosts")?
    } else {
        hosts(hostname)
    };
    mount_own(directory)?;
    let shared = shared(directory, isolation.ipc);
    write(&shared.hostname, &format!("{hostname}\n"))?;
    write(&shared.hosts, &hosts)?;
    write(&shared.resolv_conf, &resolv_conf)?;
    let mounted = directory.join(MOUNT);
    let names = [&shared.hostname, &shared.hosts, &shared.resolv_conf];
    let own = [mounted.join(MEMORY), mounted.join(NAMES)];
    for path in names.into_iter().chain(&own).filter(|_| isolation.owner != 0) {
        chown(path, Some(isolation.owner), Some(isolation.owner))
            .map_err(CriError::io("give away", path))?;
    }
    Ok(())
}

fn mount_own(directory: &Path) -> Result<()> {
    let mounted = directory.join(MOUNT);
    fs::create_dir(&mounted).map_err(CriError::io("make", &mounted))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("shm", &mounted, "tmpfs", flags, SHM_OPTIONS)
        .map_err(|error| CriError::io("mount shared memory at", &mounted)(error.into()))?;
    for (name, mode) in [(MEMORY, 0o1777), (NAMES, 0o755)] {
        let path = mounted.join(name);
        fs::create_dir(&path)
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(mode)))
            .map_err(CriError::io("make", &path))?;
    }
    // Where older runtimes look, should one of them take this sandbox over.
    for name in [HOSTNAME, HOSTS, RESOLV_CONF] {
        let link = directory.join(name);
        symlink(Path::new(MOUNT).join(NAMES).join(name), &link)
            .map_err(CriError::io("make", &link))?;
    }
    Ok(())
}

/// Undoes [`make`], as far as it came. Removing twice is fine.
pub(crate) fn remove(directory: &Path) -> Result<()> {
    let shm = directory.join(MOUNT);
    match unmount(&shm, UnmountFlags::DETACH) {
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => {}
        Err(error) => return Err(CriError::io("unmount", shm)(error.into())),
    }
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(CriError::io("remove", directory)(error))
        }
        _ => Ok(()),
    }
}

/// The resolver's configuration; `None` if the sandbox has no wish.
fn resolv_conf(dns: &DnsConfig) -> Result<Option<String>> {
    let words = [&dns.servers, &dns.searches, &dns.options];
    if words.iter().all(|list| list.is_empty()) {
        return Ok(None);
    }
    let is_word = |word: &String| !word.is_empty() && !word.contains(char::is_whitespace);
    if !words.iter().copied().flatten().all(is_word) {
        let reason = "dns_config: servers, searches and options are words without white space";
        return Err(CriError::invalid(reason));
    }
    let mut text = String::new();
    if !dns.searches.is_empty() {
        text.push_str(&format!("search {}\n", dns.searches.join(" ")));
    }
    for server in &dns.servers {
        text.push_str(&format!("nameserver {server}\n"));
    }
    if !dns.options.is_empty() {
        text.push_str(&format!("options {}\n", dns.options.join(" ")));
    }
    Ok(Some(text))
}

/// A sandbox with a network of its own has a loopback device.
fn hosts(hostname: &str) -> String {
    format!(
        "127.0.0.1\tlocalhost {hostname}\n::1\tlocalhost ip6-localhost ip6-loopback {hostname}\n\
         fe00::0\tip6-localnet\nff02::1\tip6-allnodes\nff02::2\tip6-allrouters\n"
    )
}

fn of_the_machine(path: &str) -> Result<String> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(CriError::io("read", path)(error)),
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(CriError::io("write", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(words: &[&str]) -> Vec<String> {
        words.iter().map(|&word| word.to_owned()).collect()
    }

    #[test]
    fn the_resolver_is_told_what_the_request_says() {
        let dns = DnsConfig {
            servers: list(&["10.0.0.10", "fd00::10"]),
            searches: list(&["a.svc", "svc"]),
            options: list(&["ndots:5"]),
        };
        let expected =
            "search a.svc svc\nnameserver 10.0.0.10\nnameserver fd00::10\noptions ndots:5\n";
        assert_eq!(resolv_conf(&dns).unwrap().unwrap(), expected);
        assert_eq!(resolv_conf(&DnsConfig::default()).unwrap(), None);
    }

    #[test]
    fn a_word_cannot_bring_a_line_of_its_own() {
        for word in ["a\nnameserver 6.6.6.6", "a b", ""] {
            let dns = DnsConfig { searches: list(&[word]), ..DnsConfig::default() };
            assert!(resolv_conf(&dns).is_err(), "{word:?}");
        }
    }

    #[test]
    fn the_host_name_is_known_to_the_sandbox() {
        assert!(hosts("pod-0").starts_with("127.0.0.1\tlocalhost pod-0\n"));
    }

    #[test]
    fn removing_what_is_not_there_is_fine() {
        let parent = tempfile::tempdir().unwrap();
        remove(&parent.path().join("none")).unwrap();
    }
}
