//! The emulator of our machines: the installed QEMU, or a newer one of Debian where that is too old.

use std::{path::PathBuf, process::Command};

use super::{Refusal, apt, cache};
use crate::process;

/// In Debian 12's 7.2 the kernel of trixie died in more than half of 15 boots, with flags that no program had set; in this one never so far.
const OLDEST: u32 = 10;

/// The release with a newer one that runs on the libraries of Debian 12.
const RELEASE: &str = "bookworm-backports";

/// What the program loads into a machine, and the program: it comes last, so that where it is the rest is, too.
const PACKAGES: [&str; 3] = ["qemu-system-data", "seabios", "qemu-system-x86"];

/// A command that starts the emulator, if there is one that is new enough.
pub(crate) fn emulator() -> Option<Command> {
    let folder = cache("qemu");
    let mut unpacked = Command::new(folder.join("usr/bin/qemu-system-x86_64"));
    for data in ["usr/share/qemu", "usr/share/seabios"] {
        unpacked.arg("-L").arg(folder.join(data));
    }
    let is_new = |command: &Command| version(command.get_program().into()) >= Some(OLDEST);
    [Command::new("qemu-system-x86_64"), unpacked].into_iter().find(is_new)
}

pub(super) fn unpack() -> Result<(), Refusal> {
    apt::unpack_from(RELEASE, &PACKAGES, &cache("qemu"))
}

/// The first number of its version; none for what does not run.
fn version(program: PathBuf) -> Option<u32> {
    let told = process::output(Command::new(program).arg("--version")).ok()?;
    first_number(&told)
}

fn first_number(told: &str) -> Option<u32> {
    told.strip_prefix("QEMU emulator version ")?.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(told: &str, expected: Option<u32>) {
        assert_eq!(first_number(told), expected, "{told}");
    }

    #[test]
    fn a_version_is_read_from_the_first_line() {
        check("QEMU emulator version 7.2.22 (Debian 1:7.2)\nCopyright", Some(7));
        check("QEMU emulator version 10.0.2\n", Some(10));
        check("", None);
        check("QEMU emulator version unknown", None);
    }
}
