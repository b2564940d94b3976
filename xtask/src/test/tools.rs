//! The programs that our tests call, and where they come from.
//!
//! What this machine lacks is fetched before the tests run, so that one command is enough on a new
//! machine. A test without its program is skipped, and that fails the tier unless nobody could help
//! it: then it is named at the end.

mod apt;
mod python;

use std::{
    fmt,
    path::{Path, PathBuf},
};

use super::tier::Tier;
use crate::machine::{self, Missing};

/// Kubernetes' own client, as Debian's newest release-to-be has it.
pub(super) const NEWEST_KUBECTL: &str = "kubectl-sid";

/// A program that tests call.
struct Tool {
    /// As tests call it when they are skipped for want of it.
    name: &'static str,
    why: &'static str,
    is_there: fn() -> bool,
    fetch: fn() -> Result<(), Refusal>,
    /// What to do by hand.
    remedy: &'static str,
}

const TOOLS: &[Tool] = &[
    Tool {
        name: "bash",
        why: "env files are compared with `bash --posix`",
        is_there: || machine::has_command("bash"),
        fetch: || apt::install("bash"),
        remedy: "run `apt-get install -y bash` as root, or your system's like",
    },
    Tool {
        name: "kubectl",
        why: "the API server is tested with stock kubectl",
        is_there: || machine::has_command("kubectl"),
        fetch: || apt::install("kubernetes-client"),
        remedy: "run `apt-get install -y kubernetes-client` as root, or your system's like",
    },
    Tool {
        name: NEWEST_KUBECTL,
        why: "the API server is tested with the newest kubectl too",
        is_there: || newest_kubectl().is_some(),
        fetch: || apt::unpack_from("sid", "kubectl", &cache(NEWEST_KUBECTL)),
        remedy: "unpack the package kubectl of Debian sid into ~/.cache/waybill/kubectl-sid",
    },
    Tool {
        name: "etcd",
        why: "the store is tested on real etcd",
        is_there: || machine::has_command("etcd") || is_cached("etcd/usr/bin/etcd"),
        // Unpacked and not installed, because an installed one would run all the time.
        fetch: || apt::unpack("etcd-server", &cache("etcd")),
        remedy: "unpack the Debian package etcd-server into ~/.cache/waybill/etcd",
    },
    Tool {
        name: "busybox",
        why: "containers of tests hold nothing else",
        is_there: || machine::has_command("busybox"),
        fetch: || apt::install("busybox-static"),
        remedy: "run `apt-get install -y busybox-static` as root, or your system's like",
    },
    Tool {
        name: "docker-registry",
        why: "images are pulled from a real registry",
        is_there: || {
            machine::has_command("docker-registry")
                || is_cached("docker-registry/usr/bin/docker-registry")
        },
        fetch: || apt::unpack("docker-registry", &cache("docker-registry")),
        remedy: "unpack the Debian package docker-registry into ~/.cache/waybill/docker-registry",
    },
    Tool {
        name: "containerd",
        why: "what we ask of runtimes is asked of a stock one too",
        is_there: || is_cached("containerd/usr/bin/containerd"),
        fetch: || apt::unpack("containerd", &cache("containerd")),
        remedy: "unpack the Debian package containerd into ~/.cache/waybill/containerd",
    },
    Tool {
        name: "runc",
        why: "stock containerd needs it",
        is_there: || machine::has_command("runc") || is_cached("runc/usr/sbin/runc"),
        fetch: || apt::unpack("runc", &cache("runc")),
        remedy: "unpack the Debian package runc into ~/.cache/waybill/runc",
    },
    Tool {
        name: "python-kubernetes",
        why: "the API server is tested with the Python client",
        is_there: || python::is_there(&cache("python")),
        fetch: || python::make(&cache("python")),
        remedy: "make a virtual environment with the package kubernetes in ~/.cache/waybill/python",
    },
];

/// What fetching led to.
#[derive(Default)]
pub(super) struct Tools {
    /// For people to read.
    pub(super) missing: Vec<Missing>,
    /// The tools whose tests may be skipped.
    pub(super) excused: Vec<&'static str>,
}

/// Why a tool is still missing.
enum Refusal {
    /// It should have worked.
    Fault(anyhow::Error),
    /// No mirror answers, or this user or system cannot have it.
    OutOfReach(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fault(error) => write!(f, "{error:#}"),
            Self::OutOfReach(why) => f.write_str(why),
        }
    }
}

/// Fetches what `tiers` need and this machine lacks.
pub(super) fn prepare(tiers: &[Tier]) -> Tools {
    let mut tools = Tools::default();
    let needed = if tiers.contains(&Tier::Test) { TOOLS } else { &[] };
    for tool in needed.iter().filter(|tool| !(tool.is_there)()) {
        let Err(refusal) = (tool.fetch)() else { continue };
        let missing = missing(tool, &refusal);
        println!("missing: {missing}");
        tools.missing.push(missing);
        if let Refusal::OutOfReach(_) = refusal {
            tools.excused.push(tool.name);
        }
    }
    tools
}

/// Where the newest kubectl is, if it is there.
pub(super) fn newest_kubectl() -> Option<PathBuf> {
    let path = cache(NEWEST_KUBECTL).join("usr/bin/kubectl");
    path.exists().then_some(path)
}

fn missing(tool: &Tool, refusal: &Refusal) -> Missing {
    let Tool { name, why, remedy, .. } = tool;
    Missing::new(format!("`{name}` is missing ({why}): {refusal}"), *remedy)
}

fn is_cached(path: &str) -> bool {
    cache(path).exists()
}

#[expect(clippy::disallowed_methods, reason = "the chores of a repository live in its user's home")]
fn cache(name: &str) -> PathBuf {
    let home = std::env::var_os("HOME").unwrap_or_default();
    Path::new(&home).join(".cache/waybill").join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_says_what_to_do() {
        let refusal = Refusal::OutOfReach("only root may install it".into());
        assert_eq!(
            missing(&TOOLS[0], &refusal).to_string(),
            "`bash` is missing (env files are compared with `bash --posix`): only root may install \
             it; run `apt-get install -y bash` as root, or your system's like"
        );
    }

    #[test]
    fn a_tier_that_does_not_run_needs_nothing() {
        let tools = prepare(&[Tier::Format]);
        assert!(tools.missing.is_empty() && tools.excused.is_empty());
    }
}
