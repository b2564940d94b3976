//! Which capabilities a container has.

use std::collections::HashSet;

use oci_spec::runtime::{Capability, LinuxCapabilities};
use waybill_proto::cri;

use crate::{
    capability::CAPABILITIES,
    cri::{
        error::{CriError, Result},
        machine::Machine,
    },
};

/// What a container gets that asks for nothing: the set that all runtimes agree on.
const DEFAULT: &[Capability] = &[
    Capability::AuditWrite,
    Capability::Chown,
    Capability::DacOverride,
    Capability::Fowner,
    Capability::Fsetid,
    Capability::Kill,
    Capability::Mknod,
    Capability::NetBindService,
    Capability::NetRaw,
    Capability::Setfcap,
    Capability::Setgid,
    Capability::Setpcap,
    Capability::Setuid,
    Capability::SysChroot,
];

/// The sets of a container; a privileged one has all that the kernel knows.
///
/// Where nothing keeps a container from the devices whose nodes it makes itself, it makes none.
pub(super) fn capabilities(
    request: &cri::Capability,
    privileged: bool,
    machine: &Machine,
) -> Result<LinuxCapabilities> {
    let last = usize::try_from(machine.last_capability).unwrap_or(usize::MAX);
    let known: HashSet<_> = CAPABILITIES.iter().take(last.saturating_add(1)).copied().collect();
    let mut granted: HashSet<_> =
        if privileged { known.clone() } else { DEFAULT.iter().copied().collect() };
    let ambient = parsed(&request.add_ambient_capabilities, &known)?;
    if !privileged {
        let (add, drop) = (&request.add_capabilities, &request.drop_capabilities);
        if add.iter().any(|name| is_all(name)) {
            granted.clone_from(&known);
        }
        if drop.iter().any(|name| is_all(name)) {
            granted.clear();
        }
        let mut asked = parsed(add, &known)?;
        asked.extend(&ambient);
        if !machine.guards_devices {
            refuse_device_nodes(&asked)?;
            granted.remove(&Capability::Mknod);
        }
        granted.extend(asked);
        // A kernel that does not know a capability has dropped it already.
        let dropped = parsed(drop, &CAPABILITIES.iter().copied().collect())?;
        granted.retain(|capability| !dropped.contains(capability));
    }
    let ambient: HashSet<_> = ambient.intersection(&granted).copied().collect();
    let mut sets = LinuxCapabilities::default();
    // Inheritable ones would come back through programs with inheritable file capabilities.
    sets.set_inheritable(Some(ambient.clone()));
    sets.set_ambient(Some(ambient));
    sets.set_bounding(Some(granted.clone()));
    sets.set_effective(Some(granted.clone()));
    sets.set_permitted(Some(granted));
    Ok(sets)
}

fn refuse_device_nodes(asked: &HashSet<Capability>) -> Result<()> {
    if !asked.contains(&Capability::Mknod) {
        return Ok(());
    }
    let advice = "name the devices that the container needs, or make it privileged".to_owned();
    Err(CriError::Unsupported {
        what: "the capability MKNOD on a kernel that guards no devices",
        advice,
    })
}

fn is_all(name: &str) -> bool {
    name.eq_ignore_ascii_case("ALL")
}

/// `NET_ADMIN`, `CAP_NET_ADMIN`, in any case; `ALL` is left to the caller.
fn parsed(names: &[String], known: &HashSet<Capability>) -> Result<HashSet<Capability>> {
    let one = |name: &String| {
        let upper = name.to_ascii_uppercase();
        let bare = upper.strip_prefix("CAP_").unwrap_or(&upper);
        let capability = bare.parse().ok().filter(|capability| known.contains(capability));
        capability
            .ok_or_else(|| CriError::invalid(format!("this kernel has no capability {name:?}")))
    };
    names.iter().filter(|name| !is_all(name)).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(add: &[&str], drop: &[&str], ambient: &[&str]) -> cri::Capability {
        let list = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        cri::Capability {
            add_capabilities: list(add),
            drop_capabilities: list(drop),
            add_ambient_capabilities: list(ambient),
        }
    }

    fn machine(last_capability: u32) -> Machine {
        Machine { last_capability, ..Machine::plain() }
    }

    fn granted(request: &cri::Capability) -> HashSet<Capability> {
        let sets = capabilities(request, false, &machine(40)).unwrap();
        assert_eq!(sets.bounding(), sets.effective());
        assert_eq!(sets.bounding(), sets.permitted());
        assert_eq!(sets.inheritable(), sets.ambient());
        sets.bounding().clone().unwrap()
    }

    #[test]
    fn nothing_asked_gives_the_common_set() {
        assert_eq!(granted(&request(&[], &[], &[])), DEFAULT.iter().copied().collect());
    }

    #[test]
    fn names_are_added_and_dropped_with_or_without_prefix() {
        let set = granted(&request(&["NET_ADMIN", "cap_sys_time"], &["CAP_CHOWN", "kill"], &[]));
        assert!(set.contains(&Capability::NetAdmin) && set.contains(&Capability::SysTime));
        assert!(!set.contains(&Capability::Chown) && !set.contains(&Capability::Kill));
    }

    #[test]
    fn all_comes_before_single_names() {
        assert_eq!(granted(&request(&["ALL"], &[], &[])).len(), 41);
        assert_eq!(granted(&request(&["ALL"], &["CHOWN"], &[])).len(), 40);
        assert!(granted(&request(&[], &["all"], &[])).is_empty());
        let only = granted(&request(&["NET_RAW"], &["ALL"], &[]));
        assert_eq!(only, HashSet::from([Capability::NetRaw]));
    }

    #[test]
    fn ambient_ones_are_in_every_set_unless_dropped() {
        let wanted = request(&[], &["SETUID"], &["NET_ADMIN", "SETUID"]);
        let sets = capabilities(&wanted, false, &machine(40)).unwrap();
        let only = Some(HashSet::from([Capability::NetAdmin]));
        assert_eq!((sets.ambient(), sets.inheritable()), (&only, &only));
        assert!(sets.effective().as_ref().unwrap().contains(&Capability::NetAdmin));
    }

    #[test]
    fn privileged_means_all_that_the_kernel_knows() {
        let all = |last| capabilities(&request(&[], &["ALL"], &[]), true, &machine(last)).unwrap();
        assert_eq!(all(40).bounding().as_ref().unwrap().len(), 41);
        assert!(!all(37).bounding().as_ref().unwrap().contains(&Capability::Bpf));
    }

    #[test]
    fn nobody_makes_device_nodes_where_nothing_guards_them() {
        let machine = Machine { guards_devices: false, ..Machine::plain() };
        let sets = capabilities(&request(&["ALL"], &[], &[]), false, &machine).unwrap();
        assert!(!sets.bounding().as_ref().unwrap().contains(&Capability::Mknod));
        for wanted in [request(&["MKNOD"], &[], &[]), request(&[], &[], &["CAP_MKNOD"])] {
            let error = capabilities(&wanted, false, &machine).unwrap_err().to_string();
            assert!(
                error.starts_with("the capability MKNOD on a kernel that guards no devices is not"),
                "{error}"
            );
        }
        let sets = capabilities(&request(&[], &[], &[]), true, &machine).unwrap();
        assert!(sets.bounding().as_ref().unwrap().contains(&Capability::Mknod));
    }

    #[test]
    fn unknown_names_are_refused() {
        for wanted in [request(&["FLY"], &[], &[]), request(&[], &["FLY"], &[])] {
            let error = capabilities(&wanted, false, &machine(40)).unwrap_err();
            assert_eq!(error.to_string(), "this kernel has no capability \"FLY\"");
        }
        assert!(capabilities(&request(&["BPF"], &[], &[]), false, &machine(37)).is_err());
    }
}
