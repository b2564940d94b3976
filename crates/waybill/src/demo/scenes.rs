//! The scenes of the demo, in their order.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use futures_util::AsyncReadExt;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use waybill_api::exec::PodExecOptions;
use waybill_client::{Options, Place, Requests, Resource, connect, exec::Executor};

use super::{Report, backend::Backend, sessions::output};
use crate::{columns::align, env, logs::log_path, target::pods, up::Stack};

/// Longer than any scene takes.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);

pub(super) const NAMESPACE: &str = "default";
pub(super) const POD: &str = "demo";

/// The cluster, as its owner sees it.
pub(super) struct Scenes {
    pub(super) options: Options,
    pub(super) requests: Requests,
    pub(super) place: Place,
    pub(super) state_dir: PathBuf,
}

impl Scenes {
    /// Plays all of them.
    pub(super) async fn play(
        stack: &mut Stack,
        report: &mut Report,
        backend: &Backend,
    ) -> Result<()> {
        let image = match stack.first_image() {
            Some(busybox) => Image::busybox(busybox),
            None => {
                let tools = stack.import_rest().await?;
                Image::tools(&tools.context("there is no image to run")?)
            }
        };
        let proof = format!("{}, made from a program of this machine", image.name);
        report.held("an image needs no registry", &proof)?;
        let options = Options { kubeconfig: stack.kubeconfig(), ..Options::default() };
        let requests = Requests::new(connect(&options).await?.client);
        let place = Place::Namespace(NAMESPACE.to_owned());
        let state_dir = stack.state_dir().to_owned();
        let scenes = Self { options, requests, place, state_dir };
        scenes.login(report).await?;
        scenes.rotation(report).await?;
        scenes.pod(report, &image).await?;
        scenes.log(report).await?;
        scenes.exec(report, &image).await?;
        scenes.variables(report).await?;
        scenes.env_files(report, &image).await?;
        scenes.drivers(report, &image, backend).await?;
        if image.has_shell {
            scenes.two_users(report).await?;
            scenes.programs(report).await?;
        }
        scenes.single_binary(report).await?;
        scenes.end(report).await
    }

    async fn login(&self, report: &mut Report) -> Result<()> {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let answer = self.requests.create(path, &review).await?;
        let user = text(&answer, "/status/userInfo/username");
        report.check(
            "the kubeconfig holds no credential; `waybill login` gets one",
            user.starts_with("unix:"),
            &format!("the API server knows this Unix user as {user}"),
        )?;
        Ok(())
    }

    async fn pod(&self, report: &mut Report, image: &Image) -> Result<()> {
        for manifest in [config_map(), secret(), pod(image)] {
            let resource = resource_of(&manifest);
            let path = resource.path(&self.place);
            self.requests.create(&path, &manifest).await?;
        }
        let start = Instant::now();
        let phase = self.wait_until_it_runs(POD).await?;
        let milliseconds = start.elapsed().as_millis();
        let proof = format!("pod/{POD} is {phase} after {milliseconds} ms");
        report.check("a pod runs", phase == "Running", &proof)?;
        Ok(())
    }

    /// Returns the phase that the pod is in then, and why it does not run, if so.
    pub(super) async fn wait_until_it_runs(&self, pod: &str) -> Result<String> {
        let start = Instant::now();
        let path = pods().object_path(&self.place, pod);
        loop {
            let found = self.requests.get(&path).await?;
            let phase = text(&found, "/status/phase").to_owned();
            let waiting = text(&found, "/status/containerStatuses/0/state/waiting/message");
            if phase != "Pending" || !waiting.is_empty() {
                return Ok(format!("{phase} {waiting}").trim().to_owned());
            }
            if start.elapsed() > PATIENCE {
                return Ok(format!("still {phase}"));
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    async fn log(&self, report: &mut Report) -> Result<()> {
        let path = log_path(&self.place, POD, &[("follow", "true".to_owned())]);
        let mut log = self.requests.stream(&path).await?;
        let mut line = String::new();
        let read = async {
            let mut byte = [0];
            while log.read(&mut byte).await? == 1 && byte != *b"\n" {
                line.push(char::from(byte[0]));
            }
            Ok::<_, std::io::Error>(())
        };
        timeout(PATIENCE, read).await.context("no line in its log")??;
        let holds = line == format!("hello from {POD}");
        report.check("its log is read", holds, &format!("{POD}: {line}"))?;
        Ok(())
    }

    async fn exec(&self, report: &mut Report, image: &Image) -> Result<()> {
        let options = PodExecOptions {
            stdout: true,
            command: image.exec.clone(),
            ..PodExecOptions::default()
        };
        let executor = Executor::new(&self.options).await?;
        let start = Instant::now();
        let session = executor.start(NAMESPACE, POD, &options).await?;
        let said = output(session).await?;
        let milliseconds = start.elapsed().as_millis();
        let proof =
            format!("{} says, after {milliseconds} ms: {}", image.exec.join(" "), said.trim());
        report.check("an exec answers", said.trim() == format!("hello from {POD}"), &proof)?;
        Ok(())
    }

    async fn variables(&self, report: &mut Report) -> Result<()> {
        let found = env::variables(&self.requests, NAMESPACE, POD, None).await?;
        let from = |name: &str| {
            let variable = found.iter().find(|it| it["name"] == name);
            variable.map(|it| text(it, "/from").to_owned()).unwrap_or_default()
        };
        let holds = !from("MODE").is_empty()
            && from("LEVEL").contains("demo-settings")
            && from("TOKEN").contains("demo-secret")
            && from("NODE").contains("spec.nodeName");
        let table = align(&env::rows(&found));
        report.check("every variable knows where it came from", holds, &table)?;
        let bare = serde_json::to_string(&found)?;
        let claim = "and no value is told on the way (* is sensitive)";
        report.check(claim, !bare.contains(SECRET), "the secret's value is not in the answer")?;
        Ok(())
    }

    async fn end(&self, report: &mut Report) -> Result<()> {
        let start = Instant::now();
        self.delete(POD).await?;
        let milliseconds = start.elapsed().as_millis();
        let proof = format!("gone after {milliseconds} ms: SIGTERM, and it went");
        report.held("a pod ends when it is told to", &proof)?;
        Ok(())
    }

    /// Returns when it is gone.
    pub(super) async fn delete(&self, pod: &str) -> Result<()> {
        let path = pods().object_path(&self.place, pod);
        let found = self.requests.get(&path).await?;
        let uid = text(&found, "/metadata/uid").to_owned();
        self.requests.delete(&path, &waybill_client::delete_options(None, None)).await?;
        let pods = pods();
        let gone = self.requests.wait_for_end(&pods, &self.place, pod, &uid);
        match timeout(PATIENCE, gone).await {
            Ok(gone) => Ok(gone?),
            Err(_) => bail!("pod/{pod} is still there after {} s", PATIENCE.as_secs()),
        }
    }
}

/// What the pod runs.
pub(super) struct Image {
    pub(super) name: String,
    /// Says hello, and ends when it is told to.
    pub(super) command: Vec<String>,
    /// Says hello once more.
    exec: Vec<String>,
    /// Otherwise it has our own tools.
    pub(super) has_shell: bool,
}

impl Image {
    fn busybox(name: &str) -> Self {
        const WAIT: &str =
            "echo hello from $(hostname); trap 'exit 0' TERM; while true; do sleep 0.1; done";
        Self::of(name, ["sh", "-c", WAIT], ["sh", "-c", "echo hello from $(hostname)"])
    }

    fn tools(name: &str) -> Self {
        Self::of(name, ["waybill", "hello"], ["waybill", "hello", "--once"])
    }

    fn of<const N: usize>(name: &str, command: [&str; N], exec: [&str; 3]) -> Self {
        Self {
            name: name.to_owned(),
            command: command.map(str::to_owned).to_vec(),
            exec: exec.map(str::to_owned).to_vec(),
            has_shell: exec.first() == Some(&"sh"),
        }
    }
}

pub(super) const SECRET: &str = "s3cr3t-of-the-demo";

/// Of a ConfigMap, where everybody may see it.
pub(super) const SETTING: &str = "from the ConfigMap";

fn config_map() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "demo-settings"},
        "data": {"LEVEL": "debug", "MODE": SETTING}})
}

fn secret() -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "demo-secret"},
        "stringData": {"token": SECRET}})
}

fn pod(image: &Image) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": POD}, "spec": {
        "terminationGracePeriodSeconds": 5,
        "containers": [{
            "name": "main",
            "image": image.name,
            "command": image.command,
            "envFrom": [{"configMapRef": {"name": "demo-settings"}}],
            "env": [
                {"name": "MODE", "value": "demo"},
                {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "demo-secret", "key": "token"}}},
                {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            ],
        }],
    }})
}

fn resource_of(manifest: &Value) -> Resource {
    let plural = format!("{}s", text(manifest, "/kind").to_ascii_lowercase());
    Resource { version: "v1".to_owned(), plural, namespaced: true, ..Resource::default() }
}

pub(super) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
