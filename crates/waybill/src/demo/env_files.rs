//! A scene: an init container leaves a file, and another container starts with what is in it, without
//! seeing the file; a name with colons arrives as it is (KEP-3721, KEP-4369).

use std::{
    fs,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use serde_json::{Value, json};
use tokio::time::sleep;
use waybill_client::{Place, Requests, Resource, delete_options};

use super::Report;
use crate::target::pods;

/// Longer than the scene takes.
const PATIENCE: Duration = Duration::from_secs(30);

const POD: &str = "demo-files";

/// As people keep it: no quotes, an `export`. `envfile fmt` makes an env file of it.
const DOTENV: &str = "# Made for the demo\nexport GREETING=\"hello from a file\"\n";

/// What the node reads. A shell would give the same.
const ENV_FILE: &str = "GREETING='hello from a file'";

const NAME: &str = "Logging:LogLevel:Default";

/// What runs where.
pub(super) struct Actors<'a> {
    pub(super) image: &'a str,
    /// Whether the image has a shell; otherwise it has our own tools.
    pub(super) has_shell: bool,
    /// Runs until it is told to end.
    pub(super) command: &'a [String],
}

/// Plays it.
pub(super) async fn play(
    requests: &Requests,
    place: &Place,
    actors: &Actors<'_>,
    report: &mut Report,
) -> Result<()> {
    let config_maps = Resource { plural: "configmaps".to_owned(), ..pods() };
    requests.create(&config_maps.path(place), &config_map()).await?;
    let pod = requests.create(&pods().path(place), &pod(actors)).await?;
    let uid = pod.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
    wait(requests, place).await?;
    let environment = environment(uid)?;
    let find = |name: &str| {
        let prefix = format!("{name}=");
        environment
            .iter()
            .find(|variable| variable.starts_with(&prefix))
            .cloned()
            .unwrap_or_default()
    };
    let (greeting, level) = (find("GREETING"), find(NAME));
    let wrote = match actors.has_shell {
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
    let mounts = mounts(uid)?;
    let claim = "and the app does not see the file";
    let proof = "no mount of its process leads to the volume";
    report.check(claim, !mounts.is_empty() && !mounts.contains("empty-dir"), proof)?;
    report.check(
        "a name that .NET uses arrives as it is",
        level == format!("{NAME}=Debug"),
        &format!("/proc/PID/environ of the app: {level}"),
    )?;
    requests.delete(&pods().object_path(place, POD), &delete_options(Some(0), None)).await?;
    Ok(())
}

fn config_map() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": POD},
        "data": {".env": DOTENV}})
}

fn pod(actors: &Actors<'_>) -> Value {
    let write = match actors.has_shell {
        true => json!(["sh", "-c", format!("echo \"{ENV_FILE}\" > /v/app.env")]),
        false => json!(["waybill", "envfile", "fmt", "/in/.env", "--output", "/v/app.env"]),
    };
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": POD}, "spec": {
        "volumes": [{"name": "v", "emptyDir": {}}, {"name": "in", "configMap": {"name": POD}}],
        "initContainers": [{
            "name": "write", "image": actors.image, "command": write,
            "volumeMounts": [{"name": "v", "mountPath": "/v"}, {"name": "in", "mountPath": "/in"}],
        }],
        "containers": [{
            "name": "app", "image": actors.image, "command": actors.command,
            "env": [
                {"name": "GREETING", "valueFrom": {"fileKeyRef": {
                    "volumeName": "v", "path": "app.env", "key": "GREETING"}}},
                {"name": NAME, "value": "Debug"},
                {"name": "DEMO_POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
            ],
        }],
    }})
}

async fn wait(requests: &Requests, place: &Place) -> Result<()> {
    let start = Instant::now();
    loop {
        let found = requests.get(&pods().object_path(place, POD)).await?;
        let status = found.pointer("/status/containerStatuses/0/state");
        if status.is_some_and(|state| state.get("running").is_some()) {
            return Ok(());
        }
        if start.elapsed() > PATIENCE {
            bail!("pod/{POD} does not run: {}", status.unwrap_or(&Value::Null));
        }
        sleep(Duration::from_millis(5)).await;
    }
}

/// The variables of the pod's app, as the kernel has them.
fn environment(uid: &str) -> Result<Vec<String>> {
    let Some((environment, _)) = process(uid)? else { bail!("the app of pod/{POD} is not found") };
    Ok(environment)
}

fn mounts(uid: &str) -> Result<String> {
    let Some((_, pid)) = process(uid)? else { bail!("the app of pod/{POD} is not found") };
    Ok(fs::read_to_string(format!("/proc/{pid}/mountinfo"))?)
}

/// The process that has the name with colons: shells do not hand it on to what they start.
fn process(uid: &str) -> Result<Option<(Vec<String>, u32)>> {
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
        let is_app = variables.contains(&mark) && variables.iter().any(|it| it.starts_with(NAME));
        if is_app {
            return Ok(Some((variables, pid)));
        }
    }
    Ok(None)
}
