//! Root of a pod with users of its own: every capability, and none over the machine.

use std::{fs, path::Path};

use nix::{
    errno::Errno,
    mount::{MsFlags, mount},
    unistd::{Uid, setresuid},
};

use crate::Outcome;

/// Uses rights that only the machine's root has, in ways that change nothing: a file system that only it may mount, of a disk that does
/// not exist, and less of a chance to be killed than a process was given.
pub(crate) fn of_the_machine(_arguments: &[String]) -> Outcome {
    for kind in ["ext4", "xfs", "vfat", "debugfs"] {
        let made = mount(Some("/no/disk"), "/proc", Some(kind), MsFlags::MS_RDONLY, None::<&str>);
        // One that is not there is looked for by those who may mount it.
        if !matches!(made, Err(Errno::EPERM | Errno::ENODEV)) {
            return Ok(format!("may mount {kind}: {made:?}"));
        }
    }
    match fs::write("/proc/self/oom_score_adj", "-1000") {
        Ok(()) => Ok("is never killed when memory is short".to_owned()),
        Err(error) => Err(format!("no right of the machine: {error}")),
    }
}

/// Becomes the user whose number is given, which is none of the pod's.
pub(crate) fn stranger(arguments: &[String]) -> Outcome {
    let number = arguments.first().and_then(|number| number.parse().ok());
    let user = Uid::from_raw(number.ok_or_else(|| "no user is given".to_owned())?);
    setresuid(user, user, user).map_err(|errno| format!("setresuid: {errno}"))?;
    Ok(format!("is user {user}"))
}

/// Reads or writes the file that is given, which belongs to the machine's root alone; with its owner and mode changed if need be.
pub(crate) fn file_of_the_machine(arguments: &[String]) -> Outcome {
    let path = Path::new(arguments.first().ok_or_else(|| "no file is given".to_owned())?);
    type Attempt = (&'static str, fn(&Path) -> bool);
    let attempts: [Attempt; 4] = [
        ("read", |path| fs::read(path).is_ok()),
        ("write", |path| fs::OpenOptions::new().append(true).open(path).is_ok()),
        ("give away", |path| std::os::unix::fs::chown(path, Some(0), Some(0)).is_ok()),
        ("open to all", |path| {
            use std::os::unix::fs::PermissionsExt;
            fs::set_permissions(path, fs::Permissions::from_mode(0o600)).is_ok()
        }),
    ];
    match attempts.iter().find(|(_, attempt)| attempt(path)) {
        Some((name, _)) => Ok(format!("may {name} {}", path.display())),
        None => Err(format!("{} is closed", path.display())),
    }
}
