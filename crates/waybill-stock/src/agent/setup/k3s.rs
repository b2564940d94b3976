//! k3s and RKE2: containerd's file is written anew at each start, so the handler goes where they read what to add.

use super::{HostFiles, NodeRuntime, Restart, SetupError, SetupPlan, Wanted, containerd, marked};

/// Where a distribution has its things.
pub(super) struct Place {
    /// Of the configuration of containerd.
    folder: &'static str,
    /// Of its own programs.
    programs: &'static str,
    /// The unit of an agent, and that of a server.
    units: [&'static str; 2],
}

pub(super) const K3S: Place = Place {
    folder: "/var/lib/rancher/k3s/agent/etc/containerd",
    programs: "/var/lib/rancher/k3s/data/current/bin",
    units: ["k3s-agent", "k3s"],
};

pub(super) const RKE2: Place = Place {
    folder: "/var/lib/rancher/rke2/agent/etc/containerd",
    programs: "/var/lib/rancher/rke2/bin",
    units: ["rke2-agent", "rke2-server"],
};

/// From this version on there is a folder for additions.
const DROP_INS: (u64, u64) = (1, 36);

/// What stands for everything that k3s would write by itself.
const BASE: &str = "{{ template \"base\" . }}\n";

pub(super) fn plan(
    place: &Place,
    kubernetes: (u64, u64),
    runtime: &NodeRuntime,
    wanted: Wanted,
    files: &dyn HostFiles,
) -> Result<SetupPlan, SetupError> {
    let (folder, programs) = (place.folder, [place.programs]);
    let generated = format!("{folder}/config.toml");
    let text = files.read(&generated)?.unwrap_or_default();
    // A template of ours shows in what is generated from it.
    let (block, real_runtime) =
        containerd::generated(&generated, marked::without_block(&text), files, &programs)?;
    let template = match runtime.version.0 {
        ..=1 => format!("{folder}/config.toml.tmpl"),
        2.. => format!("{folder}/config-v3.toml.tmpl"),
    };
    let file = if kubernetes >= DROP_INS {
        let text = (wanted == Wanted::Installed).then_some(block);
        (format!("{folder}/config-v3.toml.d/99-waybill.toml"), text)
    } else {
        let given = files.read(&template)?;
        let text = match wanted {
            Wanted::Installed => Some(marked::with_block(given.as_deref().unwrap_or(BASE), &block)),
            Wanted::Removed => {
                let text = given.map(|text| marked::without_block(&text));
                text.filter(|text| !text.is_empty() && text != BASE)
            }
        };
        (template, text)
    };
    let unit_file = |unit: &&&str| {
        let path = format!("/etc/systemd/system/{unit}.service");
        files.read(&path).is_ok_and(|text| text.is_some())
    };
    let unit = place.units.iter().find(unit_file).unwrap_or(&place.units[0]);
    let restart = Restart::of(unit);
    Ok(SetupPlan { files: vec![file], real_runtime, restart })
}
