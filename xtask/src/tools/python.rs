//! The Python client of Kubernetes, in a virtual environment of its own.

use std::{fs, path::Path, process::Command};

use anyhow::Result;

use super::{Refusal, apt};
use crate::process;

/// Of the package `kubernetes`.
const VERSION: &str = "37.0.2";

/// Whether `folder` has the client, and in this version.
pub(super) fn is_there(folder: &Path) -> bool {
    let check = format!("import kubernetes, sys; sys.exit(kubernetes.__version__ != '{VERSION}')");
    process::succeeds(Command::new(folder.join("bin/python")).args(["-c", &check]))
}

/// Makes the environment anew.
pub(super) fn make(folder: &Path) -> Result<(), Refusal> {
    println!("installing the Python package kubernetes into {}", folder.display());
    // Debian has the module, and what it needs, in a package of its own.
    if !process::succeeds(Command::new("python3").args(["-c", "import ensurepip, venv"])) {
        apt::install("python3-venv")?;
    }
    let mut venv = Command::new("python3");
    process::run(venv.args(["-m", "venv", "--clear"]).arg(folder)).map_err(Refusal::Fault)?;
    let install = ["install", "--quiet", &format!("kubernetes=={VERSION}")];
    pip(folder, &install).map_err(|error| {
        let reachable = pip(folder, &["download", "--quiet", "--no-deps", "pip"]).is_ok();
        // Tests would take what is there for the whole.
        let _ = fs::remove_dir_all(folder);
        let out_of_reach = || Refusal::OutOfReach("no index of Python packages answers".into());
        if reachable { Refusal::Fault(error) } else { out_of_reach() }
    })
}

fn pip(folder: &Path, args: &[&str]) -> Result<()> {
    process::run(Command::new(folder.join("bin/pip")).args(args).current_dir(folder))
}
