//! Debian packages: installed, or only unpacked into a folder.
//!
//! Where packages come from is the machine's own affair: its sources name the mirror.

use std::{fs, path::Path, process::Command};

use anyhow::{Context, Result};

use super::Refusal;
use crate::{machine, process};

/// Installs `package`. A new machine may have no package lists, or old ones; they are fetched when
/// the first try fails.
pub(super) fn install(package: &str) -> Result<(), Refusal> {
    if !machine::has_command("apt-get") {
        return Err(Refusal::OutOfReach("this is not Debian".into()));
    }
    if !machine::is_root() {
        return Err(Refusal::OutOfReach("only root may install it".into()));
    }
    println!("installing the Debian package {package}");
    let install = || run(&[], &["install", "-y", "--no-install-recommends", package]);
    install().or_else(|_| {
        update(&[])?;
        install().map_err(Refusal::Fault)
    })
}

/// Unpacks `package` of this machine's own release into `folder`.
pub(super) fn unpack(package: &str, folder: &Path) -> Result<(), Refusal> {
    println!("unpacking the Debian package {package} into {}", folder.display());
    unpack_with(&[], package, folder)
}

/// Unpacks `packages` of another release into `folder`, with lists of its own, so that the machine's
/// do not change.
pub(super) fn unpack_from(release: &str, packages: &[&str], folder: &Path) -> Result<(), Refusal> {
    let names = packages.join(", ");
    println!("unpacking {names} of Debian {release} into {}", folder.display());
    with_lists_of(release, folder, |options| {
        packages.iter().try_for_each(|package| unpack_with(options, package, folder))
    })
}

/// Unpacks the kernel for virtual machines of `release` into `folder`. Its package has the version in its name, and
/// another one names it.
pub(super) fn unpack_kernel_from(release: &str, folder: &Path) -> Result<(), Refusal> {
    println!("unpacking the kernel of Debian {release} into {}", folder.display());
    with_lists_of(release, folder, |options| {
        let kernel = dependency(options, "linux-image-cloud-amd64").map_err(Refusal::Fault)?;
        unpack_with(options, &kernel, folder)
    })
}

fn with_lists_of(
    release: &str,
    folder: &Path,
    unpack: impl FnOnce(&[String]) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    if !machine::has_command("apt-get") {
        return Err(Refusal::OutOfReach("this is not Debian".into()));
    }
    let lists = folder.join("apt");
    let options = private_lists(release, &lists).map_err(Refusal::Fault)?;
    let unpacked = update(&options).and_then(|()| unpack(&options));
    // They are large, and old the next time.
    let _ = fs::remove_dir_all(lists);
    unpacked
}

/// The first package that `package` depends on.
fn dependency(options: &[String], package: &str) -> Result<String> {
    let listed =
        process::output(Command::new("apt-cache").args(options).args(["depends", package]))?;
    let first = listed.lines().find_map(|line| line.trim().strip_prefix("Depends: "));
    Ok(first.with_context(|| format!("{package} depends on nothing"))?.to_owned())
}

fn unpack_with(options: &[String], package: &str, folder: &Path) -> Result<(), Refusal> {
    if !machine::has_command("apt-get") {
        return Err(Refusal::OutOfReach("this is not Debian".into()));
    }
    fs::create_dir_all(folder).map_err(|error| Refusal::Fault(error.into()))?;
    let script = "rm -f ./*.deb && apt-get \"$@\" && dpkg-deb -x ./*.deb . && rm ./*.deb";
    let download = || {
        let mut sh = Command::new("sh");
        sh.args(["-c", script, "sh"]).args(options).args(["download", package]);
        process::run(sh.current_dir(folder))
    };
    download().or_else(|_| {
        update(options)?;
        download().map_err(Refusal::Fault)
    })
}

/// Where apt finds `release`, at the mirror that this machine uses for its own.
fn private_lists(release: &str, folder: &Path) -> Result<Vec<String>> {
    let format = ["indextargets", "--format", "$(REPO_URI)"];
    let targets = process::output(
        Command::new("apt-get").args(format).args(["Created-By: Packages", "Label: Debian"]),
    )?;
    let mirror = targets.lines().next().context("this machine has no source of Debian packages")?;
    fs::create_dir_all(folder.join("lists/partial"))?;
    fs::create_dir_all(folder.join("cache/archives/partial"))?;
    let keys = "/usr/share/keyrings/debian-archive-keyring.gpg";
    let source = format!("deb [signed-by={keys}] {mirror} {release} main\n");
    fs::write(folder.join("sources.list"), source)?;
    let place = |name: &str, file: &str| format!("-oDir::{name}={}", folder.join(file).display());
    Ok(vec![
        place("Etc::SourceList", "sources.list"),
        "-oDir::Etc::SourceParts=-".into(),
        place("State::Lists", "lists"),
        place("Cache", "cache"),
        // What is installed here has no say in what is newest there.
        "-oDir::State::Status=/dev/null".into(),
        "-oAPT::Sandbox::User=root".into(),
        "-oAcquire::Languages=none".into(),
        "-oAcquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".into(),
    ])
}

/// Fetches package lists; that fails only where no mirror can be reached.
fn update(options: &[String]) -> Result<(), Refusal> {
    run(options, &["update", "-oAPT::Update::Error-Mode=any"])
        .map_err(|_| Refusal::OutOfReach("no mirror of Debian answers".into()))
}

fn run(options: &[String], args: &[&str]) -> Result<()> {
    let mut apt_get = Command::new("apt-get");
    process::run(apt_get.args(options).args(args).env("DEBIAN_FRONTEND", "noninteractive"))
}
