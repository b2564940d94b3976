//! An agent and its clients in one process, where a test sets the clock.

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf, time};

use jiff::Timestamp;
use tempfile::TempDir;

use super::*;
use crate::{
    EXEC_INFO, Options,
    agent::{Fetched, Holding, Invocation, Launcher, Place, asker::Asker, client},
};

struct Hand(Mutex<Timestamp>);

impl Clock for Hand {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap()
    }

    fn monotonic(&self) -> time::Instant {
        time::Instant::now()
    }
}

struct Scene {
    dir: TempDir,
    clock: Arc<Hand>,
    client: client::Agent,
    /// Numbers the processes that ask.
    askers: i32,
}

impl Scene {
    /// Runs `play` while an agent serves.
    async fn play(play: impl AsyncFnOnce(&mut Self)) {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::find(Some(dir.path()), dir.path()).unwrap();
        let lock = place.lock().await.unwrap();
        let listener = place.listen(&lock).unwrap();
        listener.set_nonblocking(true).unwrap();
        let listener = UnixListener::from_std(listener).unwrap();
        let clock = Arc::new(Hand(Mutex::new("2030-01-01T00:00:00Z".parse().unwrap())));
        let agent = Agent::new(Arc::clone(&clock) as Arc<dyn Clock>, false);
        let nobody = "/nonexistent".into();
        let launcher = Launcher { program: nobody, name: "agent".into(), arguments: Vec::new() };
        let client = client::Agent::new(place, launcher);
        let mut scene = Self { dir, clock, client, askers: 0 };
        fs::write(scene.path("plugin"), "#!/bin/sh\ncd \"${0%/*}\" && echo run >>runs; . ./then\n")
            .unwrap();
        fs::set_permissions(scene.path("plugin"), fs::Permissions::from_mode(0o755)).unwrap();
        tokio::select! {
            () = agent.serve(&listener) => panic!("the agent has left"),
            () = play(&mut scene) => {}
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// What the plugin does from now on.
    fn then(&self, script: &str) {
        fs::write(self.path("then"), script).unwrap();
    }

    fn then_token(&self, token: &str, expires: &str) {
        let status = serde_json::json!({"token": token, "expirationTimestamp": expires});
        let answer = serde_json::json!({
            "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status,
        });
        self.then(&format!("echo '{answer}'"));
    }

    fn set_clock(&self, time: &str) {
        *self.clock.0.lock().unwrap() = time.parse().unwrap();
    }

    /// What another process gets, and how often the plugin has run.
    async fn fetch(&mut self) -> (String, usize) {
        let question =
            r#"{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","spec":{}}"#;
        let environment =
            vec![("PATH".into(), "/usr/bin:/bin".into()), (EXEC_INFO.into(), question.into())];
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        let options = Options { environment, clock, ..Options::default() };
        let hour = Duration::from_hours(1);
        let holding = Holding {
            max_age: hour,
            idle: 24 * hour,
            ignored: Vec::new(),
            directory: None,
            per_directory: false,
        };
        let command = self.path("plugin").display().to_string();
        let mut invocation = Invocation::new(command, Vec::new(), options, holding).unwrap();
        self.askers += 1;
        invocation.asker = Some(Asker::test(self.askers));
        let said = match self.client.fetch(&invocation, &|_| ()).await {
            Fetched::Failed(failure) => format!("failed {}", failure.code),
            Fetched::Printed(answer) => {
                let answer: serde_json::Value = serde_json::from_slice(answer.expose()).unwrap();
                answer["status"]["token"].as_str().unwrap().to_owned()
            }
        };
        (said, fs::read_to_string(self.path("runs")).unwrap().lines().count())
    }
}

fn got(said: &str, runs: usize) -> (String, usize) {
    (said.to_owned(), runs)
}

/// CRED-48: whoever asks shortly before the end gets the next one, and the old one if there is none yet.
#[tokio::test]
async fn a_client_renews_before_the_end_and_does_not_depend_on_it_cred_48() {
    Scene::play(async |scene| {
        scene.then_token("a", "2030-01-01T01:00:00Z");
        assert_eq!(scene.fetch().await, got("a", 1));
        assert_eq!(scene.fetch().await, got("a", 1));
        scene.set_clock("2030-01-01T00:59:30Z");
        scene.then("exit 7");
        assert_eq!(scene.fetch().await, got("a", 2));
        assert_eq!(scene.fetch().await, got("a", 2), "it is not tried again");
        scene.set_clock("2030-01-01T01:00:01Z");
        assert_eq!(scene.fetch().await, got("failed 7", 3));
        scene.then_token("b", "2030-01-01T02:00:00Z");
        assert_eq!(scene.fetch().await, got("b", 4));
        scene.set_clock("2030-01-01T01:59:30Z");
        scene.then("echo nonsense");
        assert_eq!(scene.fetch().await, got("b", 5));
        scene.set_clock("2030-01-01T02:00:01Z");
        scene.then_token("c", "2030-01-01T03:00:00Z");
        assert_eq!(scene.fetch().await, got("c", 6));
        scene.set_clock("2030-01-01T02:59:30Z");
        scene.then_token("d", "2030-01-01T04:00:00Z");
        assert_eq!(scene.fetch().await, got("d", 7));
        assert_eq!(scene.fetch().await, got("d", 7));
    })
    .await;
}
