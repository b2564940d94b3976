//! Who is behind a process: two users at once in one container, and variables for an image without a shell.

use std::{
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use serde_json::json;
use tokio::time::{sleep, timeout};
use waybill_api::exec::{ExecVar, PodExecOptions};
use waybill_client::{
    ActingAs, Options,
    exec::{ExecSession, Executor, Local},
};
use waybill_trace::{End, Trace};

use super::{
    Report,
    scenes::{NAMESPACE, PATIENCE, POD, Scenes},
};
use crate::{builtin, columns::align, image, target::pods, trace};

/// An image with one file in it.
const SMALL_IMAGE: &str = "waybill.dev/demo-static:1";
const SMALL_POD: &str = "static";

/// Both start the same program; the second without any environment.
const USERS: [(&str, &str); 2] = [("anna", "exec sleep 600"), ("ben", "exec env -i sleep 600")];

impl Scenes {
    /// Two users overlap in the pod; one of them clears its environment.
    pub(super) async fn two_users(&self, report: &mut Report) -> Result<()> {
        self.allow_exec().await?;
        let mut sessions = Vec::new();
        for (user, script) in USERS {
            sessions.push(self.begin(user, &["sh", "-c", script]).await?);
        }
        let traces = self.traces_of_both().await?;
        let (rows, holds) = told(&traces);
        report.check(
            "two users in one container at once are told apart, whatever their processes do",
            holds,
            &align(&rows),
        )?;
        drop(sessions);
        Ok(())
    }

    /// Lets the users of the demo exec, and nothing else.
    async fn allow_exec(&self) -> Result<()> {
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": "demo-exec"},
            "rules": [{"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create", "get"]}]});
        let subjects = USERS.map(
            |(user, _)| json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}),
        );
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "demo-exec"}, "subjects": subjects,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "demo-exec"}});
        for (kind, object) in [("roles", role), ("rolebindings", binding)] {
            let path = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/{kind}");
            self.requests.create(&path, &object).await?;
        }
        Ok(())
    }

    pub(super) async fn begin(&self, user: &str, command: &[&str]) -> Result<ExecSession> {
        let acting_as = ActingAs { user: user.to_owned(), groups: vec!["developers".to_owned()] };
        let options = Options { acting_as: Some(acting_as), ..self.options.clone() };
        let executor = Executor::new(&options).await?;
        Ok(executor.start(NAMESPACE, POD, &asking_for(command)).await?)
    }

    /// What runs of the two users' sessions, once both programs are there.
    async fn traces_of_both(&self) -> Result<Vec<Trace>> {
        let mut sources = trace::Sources::of(&self.state_dir).await?;
        let start = Instant::now();
        loop {
            let traces = sources.read().await?.into_iter().filter(|trace| {
                trace.end == End::Running && trace.pod == POD && trace.user().is_some()
            });
            let traces: Vec<_> = traces.collect();
            let sleeping = |trace: &Trace| {
                trace.processes.iter().any(|it| it.command.first().is_some_and(|it| it == "sleep"))
            };
            let both = traces.iter().filter(|trace| sleeping(trace)).count() == USERS.len();
            if both || start.elapsed() > PATIENCE {
                return Ok(traces);
            }
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// A caller's variables need nothing in the image.
    pub(super) async fn single_binary(&self, report: &mut Report) -> Result<()> {
        let Some(archive) = builtin::single_static_binary(SMALL_IMAGE)? else {
            let claim = "a caller's variables reach an image that holds one static binary";
            return Ok(report.left_out(claim, "this machine has no static busybox to make one of")?);
        };
        image::import_archive(&trace::runtime_socket(&self.state_dir), &archive).await?;
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": SMALL_POD}, "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {"name": "main", "image": SMALL_IMAGE, "command": ["/busybox", "sleep", "600"]},
            ],
        }});
        self.requests.create(&pods().path(&self.place), &pod).await?;
        self.wait_until_it_runs(SMALL_POD).await?;
        let mut options = asking_for(&["/busybox", "env"]);
        options.env.push(ExecVar::new("GREETING", "$HOME is not expanded"));
        let session =
            Executor::new(&self.options).await?.start(NAMESPACE, SMALL_POD, &options).await?;
        let said = output(session).await?;
        let line = said.lines().find(|line| line.starts_with("GREETING=")).unwrap_or_default();
        report.check(
            "a caller's variables reach an image that holds one static binary",
            line == "GREETING=$HOME is not expanded",
            &format!("waybill exec {SMALL_POD} --env GREETING=… -- /busybox env: {line}"),
        )?;
        self.delete(SMALL_POD).await
    }
}

/// A line for each user, and whether they are what they should be.
fn told(traces: &[Trace]) -> (Vec<Vec<String>>, bool) {
    let mut rows =
        vec![["USER", "PROCESS", "COMMAND", "ITS ENVIRONMENT"].map(str::to_owned).to_vec()];
    let mut holds = traces.len() == USERS.len();
    for (user, _) in USERS {
        let Some(trace) = traces.iter().find(|trace| trace.user() == Some(user)) else {
            holds = false;
            continue;
        };
        for process in &trace.processes {
            let environment =
                fs::read(format!("/proc/{}/environ", process.pid)).unwrap_or_default();
            let id = trace.audit_id.as_deref().unwrap_or_default();
            let has_id = String::from_utf8_lossy(&environment).contains(id);
            holds &= if user == "ben" { environment.is_empty() } else { has_id };
            let told = match (environment.is_empty(), has_id) {
                (true, _) => "empty".to_owned(),
                (false, true) => format!("has the audit ID {id}"),
                (false, false) => "lacks the audit ID".to_owned(),
            };
            rows.push(vec![
                user.to_owned(),
                process.pid.to_string(),
                process.command.join(" "),
                told,
            ]);
        }
    }
    (rows, holds)
}

fn asking_for(command: &[&str]) -> PodExecOptions {
    PodExecOptions {
        stdout: true,
        command: command.iter().map(|&it| it.to_owned()).collect(),
        ..PodExecOptions::default()
    }
}

/// What the command writes until it ends.
pub(super) async fn output(session: ExecSession) -> Result<String> {
    let mut said = Vec::new();
    let local = Local {
        stdin: None::<tokio::io::Empty>,
        stdout: &mut said,
        stderr: tokio::io::sink(),
        sizes: None,
    };
    timeout(PATIENCE, session.run(local)).await.context("the session does not end")??;
    Ok(String::from_utf8_lossy(&said).into_owned())
}
