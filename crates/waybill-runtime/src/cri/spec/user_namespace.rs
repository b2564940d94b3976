//! Which user namespace a request asks for, and whether it can have it.

use waybill_proto::cri::{self, IdMapping, NamespaceMode, NamespaceOption};

use crate::{
    IdMap,
    cri::{
        error::{CriError, Result},
        machine::Machine,
    },
};

/// The ids that a request wants its users to have; `None` for those of the machine.
pub(crate) fn requested(options: &NamespaceOption) -> Result<Option<IdMap>> {
    let Some(asked) = &options.userns_options else { return Ok(None) };
    match asked.mode() {
        NamespaceMode::Node if asked.uids.is_empty() && asked.gids.is_empty() => Ok(None),
        NamespaceMode::Node => Err(CriError::invalid(
            "userns_options: mode NODE has no mappings, because users are the machine's",
        )),
        NamespaceMode::Pod => id_map("userns_options", &asked.uids, &asked.gids).map(Some),
        NamespaceMode::Container | NamespaceMode::Target => {
            Err(CriError::invalid("userns_options: mode is POD or NODE"))
        }
    }
}

/// What a sandbox asks for, if this machine can do it.
pub(crate) fn check_sandbox(options: &NamespaceOption, machine: &Machine) -> Result<Option<IdMap>> {
    let Some(map) = requested(options)? else { return Ok(None) };
    if let Err(reason) = &machine.user_namespaces {
        let advice = format!("set hostUsers to true, or mend this: {reason}");
        return Err(CriError::unsupported("a user namespace", advice));
    }
    check_others(options)?;
    Ok(Some(map))
}

/// Refuses a container that would have other users than its sandbox.
pub(super) fn check_container(
    of_sandbox: &NamespaceOption,
    options: Option<&NamespaceOption>,
) -> Result<()> {
    let made = requested(of_sandbox)?;
    let asked = options.map(requested).transpose()?.flatten();
    if asked != made {
        return Err(CriError::invalid(
            "userns_options of the container are not those of its sandbox; send the same for both",
        ));
    }
    match options {
        Some(options) if made.is_some() => check_others(options),
        _ => Ok(()),
    }
}

/// Whether a mount shall show its files under the ids of the container's users.
pub(super) fn is_mapped(mount: &cri::Mount, users: Option<IdMap>) -> Result<bool> {
    if mount.uid_mappings.is_empty() && mount.gid_mappings.is_empty() {
        return Ok(false);
    }
    let at = format!("mount {:?}", mount.container_path);
    let map = id_map(&at, &mount.uid_mappings, &mount.gid_mappings)?;
    if users != Some(map) {
        let reason = format!("{at}: its mappings are not those of the sandbox's user namespace");
        return Err(CriError::invalid(reason));
    }
    Ok(true)
}

/// File systems of the kernel can only be mounted by who owns what they show.
fn check_others(options: &NamespaceOption) -> Result<()> {
    let others = [options.network(), options.ipc(), options.pid()];
    if others.contains(&NamespaceMode::Node) {
        return Err(CriError::unsupported(
            "a user namespace with the machine's network, IPC or process namespace",
            "set hostUsers to true, or hostNetwork, hostIPC and hostPID to false",
        ));
    }
    Ok(())
}

/// One range of users and the same of groups, from root on.
fn id_map(what: &str, uids: &[IdMapping], gids: &[IdMapping]) -> Result<IdMap> {
    let ([uid], [gid]) = (uids, gids) else {
        let (uids, gids) = (uids.len(), gids.len());
        return Err(CriError::invalid(format!(
            "{what}: one mapping of users and one of groups is supported, not {uids} and {gids}"
        )));
    };
    if uid != gid || uid.container_id != 0 {
        return Err(CriError::invalid(format!(
            "{what}: users and groups need the same mapping, which begins at container_id 0"
        )));
    }
    IdMap::parse(uid.host_id, uid.length)
        .map_err(|error| CriError::invalid(format!("{what}: {error}")))
}

#[cfg(test)]
mod tests {
    use waybill_proto::cri::UserNamespace;

    use super::*;

    fn mapping(host_id: u32, container_id: u32, length: u32) -> IdMapping {
        IdMapping { host_id, container_id, length }
    }

    fn options(mode: NamespaceMode, uids: &[IdMapping], gids: &[IdMapping]) -> NamespaceOption {
        let user = UserNamespace { mode: mode.into(), uids: uids.to_vec(), gids: gids.to_vec() };
        NamespaceOption { userns_options: Some(user), ..NamespaceOption::default() }
    }

    const GOOD: IdMapping = IdMapping { host_id: 65536, container_id: 0, length: 65536 };

    #[test]
    fn a_pod_has_one_range_that_begins_with_root() {
        let map = IdMap::parse(65536, 65536).unwrap();
        let pod = NamespaceMode::Pod;
        assert_eq!(requested(&options(pod, &[GOOD], &[GOOD])).unwrap(), Some(map));
        let other = mapping(131_072, 0, 65536);
        for (uids, gids) in [
            (&[][..], &[][..]),
            (&[GOOD], &[]),
            (&[GOOD, other], &[GOOD, other]),
            (&[GOOD], &[other]),
            (&[mapping(65536, 1, 65536)], &[mapping(65536, 1, 65536)]),
            (&[mapping(65536, 0, 1000)], &[mapping(65536, 0, 1000)]),
            (&[mapping(0, 0, 65536)], &[mapping(0, 0, 65536)]),
        ] {
            assert!(requested(&options(pod, uids, gids)).is_err(), "{uids:?} {gids:?}");
        }
    }

    #[test]
    fn only_a_pod_or_the_machine_has_users() {
        assert_eq!(requested(&NamespaceOption::default()).unwrap(), None);
        assert_eq!(requested(&options(NamespaceMode::Node, &[], &[])).unwrap(), None);
        assert!(requested(&options(NamespaceMode::Node, &[GOOD], &[GOOD])).is_err());
        for mode in [NamespaceMode::Container, NamespaceMode::Target] {
            assert!(requested(&options(mode, &[GOOD], &[GOOD])).is_err(), "{mode:?}");
        }
    }

    #[test]
    fn a_machine_that_cannot_says_why() {
        let asked = options(NamespaceMode::Pod, &[GOOD], &[GOOD]);
        assert!(check_sandbox(&asked, &Machine::plain()).unwrap().is_some());
        let machine = Machine { user_namespaces: Err("no such thing".into()), ..Machine::plain() };
        let error = check_sandbox(&asked, &machine).unwrap_err().to_string();
        assert!(error.contains("hostUsers") && error.contains("no such thing"), "{error}");
        assert!(check_sandbox(&NamespaceOption::default(), &machine).unwrap().is_none());
    }

    #[test]
    fn namespaces_of_the_machine_do_not_go_with_other_users() {
        for name in ["network", "ipc", "pid"] {
            let mut asked = options(NamespaceMode::Pod, &[GOOD], &[GOOD]);
            let node = NamespaceMode::Node.into();
            match name {
                "network" => asked.network = node,
                "ipc" => asked.ipc = node,
                _ => asked.pid = node,
            }
            assert!(check_sandbox(&asked, &Machine::plain()).is_err(), "{name}");
        }
    }

    #[test]
    fn a_container_has_the_users_of_its_sandbox() {
        let (pod, node) = (NamespaceMode::Pod, NamespaceMode::Node);
        let (mapped, plain) = (options(pod, &[GOOD], &[GOOD]), options(node, &[], &[]));
        let other = mapping(131_072, 0, 65536);
        assert!(check_container(&mapped, Some(&mapped)).is_ok());
        assert!(check_container(&plain, None).is_ok());
        assert!(check_container(&mapped, None).is_err());
        assert!(check_container(&mapped, Some(&plain)).is_err());
        assert!(check_container(&plain, Some(&mapped)).is_err());
        assert!(check_container(&mapped, Some(&options(pod, &[other], &[other]))).is_err());
        let on_the_machine = NamespaceOption { pid: node.into(), ..mapped.clone() };
        assert!(check_container(&mapped, Some(&on_the_machine)).is_err());
    }

    #[test]
    fn a_mount_has_the_mapping_of_the_pod_or_none() {
        let users = Some(IdMap::parse(65536, 65536).unwrap());
        let mount = |mappings: &[IdMapping]| cri::Mount {
            uid_mappings: mappings.to_vec(),
            gid_mappings: mappings.to_vec(),
            ..cri::Mount::default()
        };
        assert!(is_mapped(&mount(&[GOOD]), users).unwrap());
        assert!(!is_mapped(&mount(&[]), users).unwrap());
        assert!(is_mapped(&mount(&[GOOD]), None).is_err());
        assert!(is_mapped(&mount(&[mapping(131_072, 0, 65536)]), users).is_err());
    }
}
