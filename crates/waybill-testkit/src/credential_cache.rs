//! A credential plugin behind `waybill credential cache`, whose answers a test decides and whose runs it counts.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::{Value, json};
use tempfile::TempDir;

const VERSION: &str = "client.authentication.k8s.io/v1";

/// A plugin, and an agent of its own, which ends with it.
#[derive(Debug)]
pub struct CachedPlugin {
    binary: PathBuf,
    dir: TempDir,
}

impl CachedPlugin {
    /// `script` is what the plugin does before it answers.
    pub fn new(binary: impl Into<PathBuf>, script: &str) -> Self {
        let dir = tempfile::tempdir().expect("the temporary directory is writable");
        let plugin = Self { binary: binary.into(), dir };
        fs::create_dir(plugin.path("run")).expect("the directory is new");
        for dir in [plugin.dir.path(), &plugin.path("run")] {
            let mode = if dir.ends_with("run") { 0o700 } else { 0o755 };
            fs::set_permissions(dir, Permissions::from_mode(mode)).expect("it is ours");
        }
        let script =
            format!("#!/bin/sh\ncd \"${{0%/*}}\" && echo run >>runs\n{script}\ncat answer\n");
        fs::write(plugin.path("plugin"), script).expect("the directory is ours");
        fs::set_permissions(plugin.path("plugin"), Permissions::from_mode(0o755))
            .expect("it is ours");
        plugin
    }

    /// From now on the plugin gives this token, until this time if there is one.
    pub fn answer_with(&self, token: &str, expires: Option<&str>) {
        let status = json!({"token": token, "expirationTimestamp": expires});
        let answer = json!({"apiVersion": VERSION, "kind": "ExecCredential", "status": status});
        fs::write(self.path("answer"), answer.to_string()).expect("the directory is ours");
    }

    /// The stanza of a kubeconfig, with flags of the cache.
    pub fn stanza(&self, flags: &[&str]) -> Value {
        let plugin = self.path("plugin").display().to_string();
        let args: Vec<&str> = ["credential", "cache"]
            .iter()
            .chain(flags)
            .chain(&["--", plugin.as_str()])
            .copied()
            .collect();
        json!({
            "apiVersion": VERSION, "interactiveMode": "IfAvailable", "command": self.binary, "args": args,
            "env": [{"name": "XDG_RUNTIME_DIR", "value": self.path("run")}],
        })
    }

    /// The cache, run by a client of its own that has no terminal.
    pub fn cache(&self) -> Command {
        self.cache_by("KUBERNETES_EXEC_INFO=\"$0\" \"$@\"; exit $?")
    }

    /// The cache, run by a shell that does `script` with the question as `$0` and the command as `$@`.
    pub fn cache_by(&self, script: &str) -> Command {
        let mut command = self.command(Path::new("/bin/sh"));
        command.args(["-c", script, &question(false)]).arg(&self.binary);
        command.args(["credential", "cache", "--verbose", "--"]).arg(self.path("plugin"));
        command
    }

    /// Another command of ours that finds the same agent.
    pub fn waybill(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(&self.binary);
        command.args(arguments);
        command
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("XDG_RUNTIME_DIR", self.path("run"))
            .env("TMPDIR", self.dir.path())
            .env("PATH", "/usr/bin:/bin")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// How often the plugin was run.
    pub fn runs(&self) -> usize {
        fs::read_to_string(self.path("runs")).unwrap_or_default().lines().count()
    }

    /// The number of the agent's process, if it runs.
    pub fn agent(&self) -> Option<String> {
        let output = self.waybill(&["credential", "list"]).output().expect("the binary starts");
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        let (_, rest) = stdout.split_once("agent: process ")?;
        rest.split_once(',').map(|(pid, _)| pid.to_owned())
    }

    /// Kills the agent as nobody can prevent.
    pub fn kill_agent(&self) {
        let Some(agent) = self.agent() else { return };
        let killed = Command::new("kill").args(["-9", &agent]).status();
        assert!(killed.is_ok_and(|status| status.success()), "the agent is not killed");
    }

    /// A file beside the plugin.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The directory in which the agent's socket is.
    pub fn socket_dir(&self) -> PathBuf {
        self.path("run/waybill")
    }
}

impl Drop for CachedPlugin {
    fn drop(&mut self) {
        if let Some(agent) = self.agent() {
            let _ = Command::new("kill").arg(agent).status();
        }
    }
}

/// What clients put into the environment of a plugin.
pub fn question(interactive: bool) -> String {
    json!({"kind": "ExecCredential", "apiVersion": VERSION, "spec": {"interactive": interactive}})
        .to_string()
}

/// Whether a file below `dir`, or its name, has `secret` in it, other than those in `known`.
pub fn is_written(secret: &str, dir: &Path, known: &[PathBuf]) -> Option<PathBuf> {
    for entry in fs::read_dir(dir).ok()?.flatten() {
        let path = entry.path();
        let kind = entry.file_type().ok()?;
        if kind.is_dir() {
            if let Some(found) = is_written(secret, &path, known) {
                return Some(found);
            }
        } else if kind.is_file() && !known.contains(&path) {
            let bytes = fs::read(&path).unwrap_or_default();
            if bytes.windows(secret.len()).any(|part| part == secret.as_bytes()) {
                return Some(path);
            }
        }
    }
    None
}
