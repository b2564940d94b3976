//! Capabilities and their numbers.

use oci_spec::runtime::Capability;

/// Every capability in the order of its number, as in `linux/capability.h`. The only such list of this crate.
pub(crate) const CAPABILITIES: [Capability; 41] = [
    Capability::Chown,
    Capability::DacOverride,
    Capability::DacReadSearch,
    Capability::Fowner,
    Capability::Fsetid,
    Capability::Kill,
    Capability::Setgid,
    Capability::Setuid,
    Capability::Setpcap,
    Capability::LinuxImmutable,
    Capability::NetBindService,
    Capability::NetBroadcast,
    Capability::NetAdmin,
    Capability::NetRaw,
    Capability::IpcLock,
    Capability::IpcOwner,
    Capability::SysModule,
    Capability::SysRawio,
    Capability::SysChroot,
    Capability::SysPtrace,
    Capability::SysPacct,
    Capability::SysAdmin,
    Capability::SysBoot,
    Capability::SysNice,
    Capability::SysResource,
    Capability::SysTime,
    Capability::SysTtyConfig,
    Capability::Mknod,
    Capability::Lease,
    Capability::AuditWrite,
    Capability::AuditControl,
    Capability::Setfcap,
    Capability::MacOverride,
    Capability::MacAdmin,
    Capability::Syslog,
    Capability::WakeAlarm,
    Capability::BlockSuspend,
    Capability::AuditRead,
    Capability::Perfmon,
    Capability::Bpf,
    Capability::CheckpointRestore,
];

/// The bit of a capability in the kernel's sets.
pub(crate) fn bit(capability: Capability) -> u64 {
    let number = CAPABILITIES.iter().position(|&known| known == capability);
    number.map_or(0, |number| 1 << number)
}

/// The bit of a capability by its whole name, such as `CAP_CHOWN`.
pub(crate) fn bit_of(name: &str) -> Option<u64> {
    name.strip_prefix("CAP_")?.parse().ok().map(bit)
}

#[cfg(test)]
mod tests {
    use rustix::thread::CapabilitySet;

    use super::*;

    #[test]
    fn capabilities_have_the_numbers_of_the_kernel() {
        for capability in CAPABILITIES {
            let known = CapabilitySet::from_name(&capability.to_string());
            assert_eq!(known.map(|it| it.bits()), Some(bit(capability)), "{capability}");
        }
        assert_eq!(CAPABILITIES.map(bit).into_iter().sum::<u64>(), (1 << 41) - 1);
    }

    #[test]
    fn names_are_whole() {
        assert_eq!(bit_of("CAP_SYS_TTY_CONFIG"), Some(1 << 26));
        assert_eq!(bit_of("CAP_CHECKPOINT_RESTORE"), Some(1 << 40));
        for none in ["CHOWN", "CAP_", "CAP_CAP_CHOWN", "cap_chown", "CAP_FLY"] {
            assert_eq!(bit_of(none), None, "{none}");
        }
    }
}
