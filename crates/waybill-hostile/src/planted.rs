//! A program left in a file that others gave us to write: run by somebody else, it has the rights of who left it there.

use std::{
    env, fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::Path,
    process::Command,
};

use nix::unistd::geteuid;

use crate::Outcome;

/// What the planted program does, by name.
pub(crate) const EFFECTIVE_USER: &str = "effective-user";
/// Nobody in particular.
const SOMEBODY: u32 = 1000;

/// Makes the file a setuid program of ours and runs it as somebody else. Whether it is there before does not matter.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    let path = Path::new(arguments.first().ok_or("which file?")?);
    let at = |action: &'static str| move |error| format!("{action} {}: {error}", path.display());
    let program = env::current_exe().and_then(fs::read).map_err(at("read ourselves for"))?;
    // What is there stays the same file: it may be mounted.
    fs::write(path, program).map_err(at("write"))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o4755)).map_err(at("chmod"))?;
    let mut command = Command::new(path);
    let ran = command.arg(EFFECTIVE_USER).uid(SOMEBODY).gid(SOMEBODY).output();
    let ran = ran.map_err(at("run"))?;
    let said = String::from_utf8_lossy(&ran.stdout).trim().to_owned();
    match said.as_str() {
        "0" => Ok(format!("{} makes {SOMEBODY} root", path.display())),
        other => Err(format!("{} is run as {other:?}", path.display())),
    }
}

/// Who we act as.
pub(crate) fn effective_user(_arguments: &[String]) -> Outcome {
    Ok(geteuid().to_string())
}
