//! The commands that our tests call, and the Debian packages that bring them.
//!
//! Where we may, we install what is missing, so that one command is enough on a new machine.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;

use super::tier::Tier;
use crate::{
    machine::{self, Missing},
    process,
};

/// A command that a tier's tests call.
struct Needed {
    command: &'static str,
    package: &'static str,
    tier: Tier,
    why: &'static str,
}

const NEEDED: &[Needed] = &[
    Needed {
        command: "bash",
        package: "bash",
        tier: Tier::Test,
        why: "env files are compared with `bash --posix`",
    },
    Needed {
        command: "kubectl",
        package: "kubernetes-client",
        tier: Tier::Test,
        why: "the API server is tested with stock kubectl",
    },
    Needed {
        command: "busybox",
        package: "busybox-static",
        tier: Tier::Test,
        why: "containers of tests hold nothing else",
    },
];

/// A server that tests start themselves. Its package is unpacked and not installed, because an
/// installed one would run all the time.
struct Unpacked {
    command: &'static str,
    package: &'static str,
    why: &'static str,
}

const UNPACKED: &[Unpacked] = &[
    Unpacked { command: "etcd", package: "etcd-server", why: "the store is tested on real etcd" },
    Unpacked {
        command: "docker-registry",
        package: "docker-registry",
        why: "images are pulled from a real registry",
    },
];

/// Unpacks what tests would otherwise skip, into `~/.cache/waybill/<command>`.
pub(super) fn unpack(tiers: &[Tier]) {
    if !tiers.contains(&Tier::Test) {
        return;
    }
    for Unpacked { command, package, why } in UNPACKED {
        let Some(folder) = cache(command) else { continue };
        if machine::has_command(command) || folder.join("usr/bin").join(command).exists() {
            continue;
        }
        println!("unpacking the Debian package {package} into {}", folder.display());
        if let Err(error) = download(package, &folder) {
            println!("missing: `{command}` ({why}); its tests are skipped: {error:#}");
        }
    }
}

fn download(package: &str, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    let script = "apt-get download \"$1\" || { apt-get update && apt-get download \"$1\"; } \
                  && dpkg-deb -x \"$1\"_*.deb .";
    process::run(Command::new("sh").args(["-c", script, "sh", package]).current_dir(folder))
}

#[expect(clippy::disallowed_methods, reason = "the chores of a repository live in its user's home")]
fn cache(name: &str) -> Option<PathBuf> {
    Some(Path::new(&std::env::var_os("HOME")?).join(".cache/waybill").join(name))
}

/// Installs what `tiers` need and this machine lacks; returns what is still missing after that.
pub(super) fn prepare(tiers: &[Tier]) -> Vec<Missing> {
    let needed = NEEDED.iter().filter(|needed| tiers.contains(&needed.tier));
    needed
        .filter(|needed| !machine::has_command(needed.command))
        .filter_map(|needed| {
            let refusal = if !machine::has_command("apt-get") {
                "this is not Debian".to_owned()
            } else if !machine::is_root() {
                "only root may install it".to_owned()
            } else {
                format!("{:#}", install(needed.package).err()?)
            };
            Some(missing(needed, &refusal))
        })
        .inspect(|missing| println!("missing: {missing}"))
        .collect()
}

fn missing(needed: &Needed, refusal: &str) -> Missing {
    let Needed { command, package, why, .. } = needed;
    Missing::new(
        format!("`{command}` is missing ({why}), and {refusal}"),
        format!("run `apt-get install -y {package}` as root, or your system's like"),
    )
}

/// A new machine may have no package lists, or old ones; they are fetched when the first try fails.
fn install(package: &str) -> Result<()> {
    println!("installing the Debian package {package}");
    apt_get(&["install", "-y", package]).or_else(|_| {
        apt_get(&["update"])?;
        apt_get(&["install", "-y", package])
    })
}

fn apt_get(args: &[&str]) -> Result<()> {
    process::run(Command::new("apt-get").args(args).env("DEBIAN_FRONTEND", "noninteractive"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_says_what_to_run() {
        let text = missing(&NEEDED[0], "only root may install it").to_string();
        assert_eq!(
            text,
            "`bash` is missing (env files are compared with `bash --posix`), and only root may \
             install it; run `apt-get install -y bash` as root, or your system's like"
        );
    }

    #[test]
    fn a_tier_that_does_not_run_needs_nothing() {
        assert_eq!(prepare(&[Tier::Format]), []);
    }
}
