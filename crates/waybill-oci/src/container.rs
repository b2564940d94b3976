//! A container that exists, found by what its runtime keeps about it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use crate::node::read_json;

/// A container, as its runtime knows it.
#[derive(Debug)]
pub(crate) struct Container {
    /// Where its files are.
    pub(crate) bundle: PathBuf,
    /// Where its processes are.
    pub(crate) cgroups: Cgroups,
}

/// The cgroups of a container.
#[derive(Debug)]
pub(crate) enum Cgroups {
    /// runc names a directory for each controller; one without a name on cgroup v2.
    Runc(BTreeMap<String, PathBuf>),
    /// crun names one path, which it looks for in each hierarchy.
    Crun(String),
}

impl Container {
    /// Looks for the container `id` below the state directory of its runtime.
    pub(crate) fn find(root: &Path, id: &str) -> Option<Self> {
        let directory = root.join(id);
        if let Ok(state) = read_json::<RuncState>(&directory.join("state.json")) {
            let bundle =
                state.config.labels.iter().find_map(|label| label.strip_prefix("bundle="))?;
            return Some(Self {
                bundle: bundle.into(),
                cgroups: Cgroups::Runc(state.cgroup_paths),
            });
        }
        let status: CrunStatus = read_json(&directory.join("status")).ok()?;
        Some(Self { bundle: status.bundle, cgroups: Cgroups::Crun(status.cgroup_path) })
    }
}

/// `state.json` of runc.
#[derive(Deserialize)]
struct RuncState {
    config: RuncConfig,
    #[serde(default)]
    cgroup_paths: BTreeMap<String, PathBuf>,
}

#[derive(Deserialize)]
struct RuncConfig {
    #[serde(default)]
    labels: Vec<String>,
}

/// `status` of crun.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct CrunStatus {
    bundle: PathBuf,
    #[serde(default)]
    cgroup_path: String,
}
