//! A scene: an init container leaves a file, and another container starts with what is in it, without
//! seeing the file; a name with colons arrives as it is (KEP-3721, KEP-4369).

use std::fs;

use anyhow::{Result, bail};
use serde_json::{Value, json};
use waybill_client::Resource;

use super::{
    Report,
    scenes::{Image, Scenes, text},
};
use crate::target::pods;

const POD: &str = "demo-files";

/// As people keep it: no quotes, an `export`. `envfile fmt` makes an env file of it.
const DOTENV: &str = "# Made for the demo\nexport GREETING=\"hello from a file\"\n";

/// What the node reads. A shell would give the same.
const ENV_FILE: &str = "GREETING='hello from a file'";

const NAME: &str = "Logging:LogLevel:Default";

impl Scenes {
    pub(super) async fn env_files(&self, report: &mut Report, image: &Image) -> Result<()> {
        let config_maps = Resource { plural: "configmaps".to_owned(), ..pods() };
        self.requests.create(&config_maps.path(&self.place), &config_map()).await?;
        let pod = self.requests.create(&pods().path(&self.place), &pod(image)).await?;
        let uid = text(&pod, "/metadata/uid");
        self.wait_until_it_runs(POD).await?;
        show(uid, image, report)?;
        self.delete(POD).await
    }
}

fn show(uid: &str, image: &Image, report: &mut Report) -> Result<()> {
    let Some((environment, pid)) = process(uid, NAME)? else {
        bail!("the app of pod/{POD} is not found")
    };
    let find = |name: &str| {
        let prefix = format!("{name}=");
        environment
            .iter()
            .find(|variable| variable.starts_with(&prefix))
            .cloned()
            .unwrap_or_default()
    };
    let (greeting, level) = (find("GREETING"), find(NAME));
    let wrote = match image.has_shell {
        true => format!("the init container wrote app.env: {ENV_FILE}"),
        false => {
            "the init container wrote app.env: waybill envfile fmt /in/.env --output /v/app.env"
                .to_owned()
        }
    };
    report.check(
        "an init container writes an env file, and the next container starts with it",
        greeting == "GREETING=hello from a file",
        &format!("{wrote}\n/proc/PID/environ of the app: {greeting}"),
    )?;
    let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo"))?;
    let claim = "and the app does not see the file";
    let proof = "no mount of its process leads to the volume";
    report.check(claim, !mounts.is_empty() && !mounts.contains("empty-dir"), proof)?;
    report.check(
        "a name that .NET uses arrives as it is",
        level == format!("{NAME}=Debug"),
        &format!("/proc/PID/environ of the app: {level}"),
    )?;
    Ok(())
}

fn config_map() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": POD},
        "data": {".env": DOTENV}})
}

fn pod(image: &Image) -> Value {
    let write = match image.has_shell {
        true => json!(["sh", "-c", format!("echo \"{ENV_FILE}\" > /v/app.env")]),
        false => json!(["waybill", "envfile", "fmt", "/in/.env", "--output", "/v/app.env"]),
    };
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": POD}, "spec": {
        "terminationGracePeriodSeconds": 0,
        "volumes": [{"name": "v", "emptyDir": {}}, {"name": "in", "configMap": {"name": POD}}],
        "initContainers": [{
            "name": "write", "image": image.name, "command": write,
            "volumeMounts": [{"name": "v", "mountPath": "/v"}, {"name": "in", "mountPath": "/in"}],
        }],
        "containers": [{
            "name": "app", "image": image.name, "command": image.command,
            "env": [
                {"name": "GREETING", "valueFrom": {"fileKeyRef": {
                    "volumeName": "v", "path": "app.env", "key": "GREETING"}}},
                {"name": NAME, "value": "Debug"},
                {"name": "DEMO_POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
            ],
        }],
    }})
}

/// The process of a pod that has the variable `name`, by its mark `DEMO_POD`. Shells do not hand a name with
/// colons on to what they start.
pub(super) fn process(uid: &str, name: &str) -> Result<Option<(Vec<String>, u32)>> {
    let mark = format!("DEMO_POD={uid}");
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let Ok(bytes) = fs::read(entry.path().join("environ")) else { continue };
        let variables: Vec<String> = bytes
            .split(|byte| *byte == 0)
            .map(|it| String::from_utf8_lossy(it).into_owned())
            .collect();
        let is_app = variables.contains(&mark) && variables.iter().any(|it| it.starts_with(name));
        if is_app {
            return Ok(Some((variables, pid)));
        }
    }
    Ok(None)
}
