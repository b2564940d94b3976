//! Finds the programs that tests run: named by a variable, in the path, or in our cache, into which
//! `cargo xtask test` unpacks what a machine lacks.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use crate::skip::skip;

/// A stock program.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// What people call it.
    name: &'static str,
    /// Its name in the path, if that is enough to know it.
    command: Option<&'static str>,
    /// The variable that names another one.
    variable: &'static str,
    /// Below `~/.cache/waybill`.
    cached: &'static str,
}

/// The server of etcd.
pub const ETCD: Program = Program {
    name: "etcd",
    command: Some("etcd"),
    variable: "WAYBILL_ETCD",
    cached: "etcd/usr/bin/etcd",
};

/// The stock container runtime; its `ctr` stands beside it.
pub const CONTAINERD: Program = Program {
    name: "containerd",
    command: None,
    variable: "WAYBILL_CONTAINERD",
    cached: "containerd/usr/bin/containerd",
};

/// What stock containerd makes containers with.
pub const RUNC: Program = Program {
    name: "runc",
    command: Some("runc"),
    variable: "WAYBILL_RUNC",
    cached: "runc/usr/sbin/runc",
};

/// The other runtime that containers are made with.
pub const CRUN: Program = Program {
    name: "crun",
    command: Some("crun"),
    variable: "WAYBILL_CRUN",
    cached: "crun/usr/bin/crun",
};

/// A browser.
pub const CHROMIUM: Program = Program {
    name: "chromium",
    command: Some("chromium"),
    variable: "WAYBILL_CHROMIUM",
    cached: "chromium/usr/bin/chromium",
};

/// Kubernetes' own client.
pub const KUBECTL: Program = Program {
    name: "kubectl",
    command: Some("kubectl"),
    variable: "WAYBILL_KUBECTL",
    cached: "kubectl-sid/usr/bin/kubectl",
};

/// What judges the rules of Prometheus.
pub const PROMTOOL: Program = Program {
    name: "promtool",
    command: Some("promtool"),
    variable: "WAYBILL_PROMTOOL",
    cached: "prometheus/usr/bin/promtool",
};

/// Python with the package `kubernetes`.
pub const PYTHON: Program = Program {
    name: "python-kubernetes",
    command: None,
    variable: "WAYBILL_PYTHON",
    cached: "python/bin/python",
};

/// OpenBao, which has Vault's API.
pub const OPENBAO: Program = Program {
    name: "openbao",
    command: Some("bao"),
    variable: "WAYBILL_OPENBAO",
    cached: "openbao/bin/bao",
};

/// A server that answers as AWS does, and checks who asks.
pub const MINISTACK: Program = Program {
    name: "ministack",
    command: None,
    variable: "WAYBILL_MINISTACK",
    cached: "ministack/bin/ministack",
};

/// Another server that answers as AWS does.
pub const MOTO: Program = Program {
    name: "moto",
    command: None,
    variable: "WAYBILL_MOTO",
    cached: "moto/bin/moto_server",
};

/// Python with the clients that Google and Microsoft wrote for their clouds.
pub const CLOUD_CLIENTS: Program = Program {
    name: "cloud-clients",
    command: None,
    variable: "WAYBILL_CLOUD_CLIENTS",
    cached: "cloud-clients/bin/python",
};

impl Program {
    /// Where it is; `None`, with a word about it, if this machine has none.
    pub fn find(self) -> Option<PathBuf> {
        let found = self.search();
        if found.is_none() {
            let Self { name, variable, .. } = self;
            skip(name, &format!("run `cargo xtask test`, or name one with {variable}"));
        }
        found
    }

    fn search(self) -> Option<PathBuf> {
        if let Some(named) = env::var_os(self.variable) {
            let named = PathBuf::from(named);
            assert!(is_file(&named), "{} names no file: {}", self.variable, named.display());
            return Some(named);
        }
        let path = env::var_os("PATH").unwrap_or_default();
        let folders = self.command.into_iter().flat_map(|command| {
            env::split_paths(&path).map(move |folder| folder.join(command)).collect::<Vec<_>>()
        });
        let home = PathBuf::from(env::var_os("HOME").unwrap_or_default());
        let cached = home.join(".cache/waybill").join(self.cached);
        folders.chain([cached]).find(|candidate| is_file(candidate))
    }
}

fn is_file(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file())
}
