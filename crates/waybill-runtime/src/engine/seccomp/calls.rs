//! The names and numbers of system calls.

/// A row for each call that Linux has in one of our ABIs.
const TABLE: &str = include_str!("calls.txt");

/// How a process calls the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Abi {
    X86_64,
    I386,
    Aarch64,
    Arm,
}

impl Abi {
    /// Those of the processes that this machine can run, its own first. Empty on machines that we do not know.
    pub(super) const fn of_this_machine() -> &'static [Self] {
        if cfg!(target_arch = "x86_64") {
            &[Self::X86_64, Self::I386]
        } else if cfg!(target_arch = "aarch64") {
            &[Self::Aarch64, Self::Arm]
        } else {
            &[]
        }
    }

    /// As the kernel names it: `AUDIT_ARCH_*` of `linux/audit.h`.
    pub(super) const fn kernel_name(self) -> u32 {
        match self {
            Self::X86_64 => 0xc000_003e,
            Self::I386 => 0x4000_0003,
            Self::Aarch64 => 0xc000_00b7,
            Self::Arm => 0x4000_0028,
        }
    }

    /// As profiles name it, after libseccomp.
    pub(super) const fn profile_name(self) -> &'static str {
        match self {
            Self::X86_64 => "SCMP_ARCH_X86_64",
            Self::I386 => "SCMP_ARCH_X86",
            Self::Aarch64 => "SCMP_ARCH_AARCH64",
            Self::Arm => "SCMP_ARCH_ARM",
        }
    }

    /// As profiles of Docker's kind name the machine in conditions, after Go.
    pub(super) const fn machine_name(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::I386 => "x86",
            Self::Aarch64 => "arm64",
            Self::Arm => "arm",
        }
    }

    const fn column(self) -> usize {
        match self {
            Self::X86_64 => 0,
            Self::I386 => 1,
            Self::Aarch64 => 2,
            Self::Arm => 3,
        }
    }
}

/// A system call, by the name that all ABIs share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) name: &'static str,
    numbers: [Option<u32>; 4],
}

impl Call {
    /// Its number in an ABI, where that has it.
    pub(super) fn number(&self, abi: Abi) -> Option<u32> {
        self.numbers.get(abi.column()).copied().flatten()
    }
}

/// Every call that is known, by name from the first letter on.
pub(super) fn all() -> impl Iterator<Item = Call> {
    TABLE.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut words = line.split(' ');
        let name = words.next()?;
        Some(Call { name, numbers: [(); 4].map(|()| words.next()?.parse().ok()) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_c_library() {
        let native = Abi::of_this_machine()[0];
        for (name, number) in [
            ("read", libc::SYS_read),
            ("clone3", libc::SYS_clone3),
            ("mount_setattr", libc::SYS_mount_setattr),
            ("ptrace", libc::SYS_ptrace),
            ("process_madvise", libc::SYS_process_madvise),
            ("setns", libc::SYS_setns),
            ("keyctl", libc::SYS_keyctl),
        ] {
            let call = all().find(|call| call.name == name).unwrap();
            assert_eq!(call.number(native).map(i64::from), Some(number), "{name}");
        }
        let umount = all().find(|call| call.name == "umount").unwrap();
        assert_eq!(umount.numbers, [None, Some(22), None, None]);
    }

    #[test]
    fn no_number_of_an_abi_has_two_names_but_one_of_arm() {
        for abi in [Abi::X86_64, Abi::I386, Abi::Aarch64, Abi::Arm] {
            let mut numbers: Vec<u32> = all().filter_map(|call| call.number(abi)).collect();
            assert!(numbers.len() > 300, "{abi:?}");
            numbers.sort_unstable();
            let twice: Vec<u32> =
                numbers.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
            // `sync_file_range2` and `arm_sync_file_range`.
            assert_eq!(twice, if abi == Abi::Arm { vec![341] } else { Vec::new() }, "{abi:?}");
        }
    }
}
