//! Lays hands on another process of the container: what it then does is done under that process's name, and in its cgroup.

use std::io::IoSlice;

use nix::{
    errno::Errno,
    sys::{
        ptrace,
        uio::{RemoteIoVec, process_vm_writev},
    },
    unistd::Pid,
};

use crate::Outcome;

/// Becomes the debugger of the process whose number is given.
pub(crate) fn attach(arguments: &[String]) -> Outcome {
    let target = target(arguments)?;
    ptrace::attach(target).map_err(|error| format!("attach: {error}"))?;
    Ok(format!("attached to {target}"))
}

/// Writes to the memory of the process whose number is given. The address does not exist there, so that nothing breaks; who may
/// write is told so, who may not is told that.
pub(crate) fn write(arguments: &[String]) -> Outcome {
    let target = target(arguments)?;
    let nowhere = RemoteIoVec { base: 8, len: 1 };
    match process_vm_writev(target, &[IoSlice::new(b"x")], &[nowhere]) {
        Ok(_) | Err(Errno::EFAULT) => Ok(format!("may write to {target}")),
        Err(error) => Err(format!("process_vm_writev: {error}")),
    }
}

fn target(arguments: &[String]) -> Result<Pid, String> {
    let number = arguments.first().and_then(|number| number.parse().ok());
    number.map(Pid::from_raw).ok_or_else(|| "no process is given".to_owned())
}
