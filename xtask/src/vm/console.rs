//! The machine while it runs: its console is shown, and its last line tells how the command ended.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

use super::disks::Disks;
use crate::tools;

/// What `second.sh` prints before the exit code.
const MARK: &str = "waybill-vm: exit code ";

/// What `timeout` ends with when the time is up.
const TIME_IS_UP: i32 = 124;

/// Starts a machine, shows its console with `label` before each line and returns the exit code of its command.
pub(super) fn run(
    image: &Path,
    initramfs: &Path,
    disks: &Disks,
    limit: u64,
    label: &str,
) -> Result<u8> {
    let mut machine = qemu(image, initramfs, disks, limit)?
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the machine")?;
    let console = machine.stdout.take().context("the machine has no console")?;
    let code = show(BufReader::new(console), label);
    let status = machine.wait()?;
    match code? {
        Some(code) => Ok(code),
        None if status.code() == Some(TIME_IS_UP) => {
            bail!("the machine was stopped after {limit} s; `--limit` gives it longer")
        }
        None => bail!("the machine ended before its command did ({status})"),
    }
}

/// The limit holds also when nobody is left who watches.
fn qemu(image: &Path, initramfs: &Path, disks: &Disks, limit: u64) -> Result<Command> {
    let emulator = tools::emulator().context("there is no emulator")?;
    let mut command = Command::new("timeout");
    command.args(["--foreground", "--kill-after=5", &limit.to_string()]);
    command.arg(emulator.get_program()).args(emulator.get_args());
    // KVM is not asked for even where there is one: in a machine that is virtual itself it may start and then break.
    command.args(["-machine", "accel=tcg", "-cpu", "max", "-m", "2048", "-smp", "2"]);
    command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
    command.args(["-serial", "stdio"]);
    command.arg("-kernel").arg(image).arg("-initrd").arg(initramfs);
    // The first is `/dev/vda` there. Nobody reads them after the machine, so nothing has to reach a disk of ours.
    for disk in [&disks.state, &disks.swap] {
        let drive = format!("file={},format=raw,if=virtio,cache=unsafe", disk.display());
        command.args(["-drive", &drive]);
    }
    // Where this machine is busy, the kernel finds its timer too slow at the start, and gives up unless told not to look.
    command.args(["-append", "console=ttyS0 quiet loglevel=4 panic=-1 no_timer_check"]);
    Ok(command)
}

/// Shows what is printed; returns the exit code that was told.
fn show(console: impl BufRead, label: &str) -> Result<Option<u8>> {
    let mut code = None;
    for line in console.split(b'\n') {
        let line = line.context("cannot read the console")?;
        let line = String::from_utf8_lossy(&line);
        // A terminal line, so with a carriage return.
        let line = line.trim_end_matches('\r');
        match line.strip_prefix(MARK) {
            Some(told) => code = Some(told.parse().with_context(|| format!("no code: {line}"))?),
            None => println!("{label}{line}"),
        }
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(console: &str, expected: Option<u8>) {
        assert_eq!(show(console.as_bytes(), "").unwrap(), expected, "{console}");
    }

    #[test]
    fn the_exit_code_is_read_off_the_console() {
        check("Linux 6.1\r\nwaybill-vm: exit code 3\r\n[ 1.0] reboot: Power down\r\n", Some(3));
        check("Linux 6.1\r\n[ 1.0] Kernel panic\r\n", None);
        check("echo waybill-vm: exit code 3\r\n", None);
        assert!(show("waybill-vm: exit code 300\r\n".as_bytes(), "").is_err());
    }
}
