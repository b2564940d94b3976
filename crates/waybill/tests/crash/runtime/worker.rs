//! A client that leads one container after the other through its life, and keeps a ledger of what it was told.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tonic::{Code, Status};

use super::{
    client::{Client, Script},
    ledger::{Excuse, Ledger, ended},
};

/// Works under names of its own, in one sandbox.
pub(crate) struct Worker {
    client: Client,
    ledger: Ledger,
    /// Gets a permit for each step.
    done: Arc<Semaphore>,
    name: String,
}

impl Worker {
    pub(crate) fn new(client: Client, ledger: Ledger, done: Arc<Semaphore>, name: String) -> Self {
        Self { client, ledger, done, name }
    }

    /// Until the runtime is killed.
    pub(crate) async fn work(self) {
        let sandbox = loop {
            match self.client.run_sandbox(&self.name).await {
                Ok(sandbox) => break sandbox,
                Err(status) => match self.ledger.excuse("", &status) {
                    Excuse::Runtime => return,
                    Excuse::Spawner => {}
                    Excuse::Monitor => panic!("a sandbox has no monitor: {status:?}"),
                },
            }
        };
        for number in 0.. {
            let excuse = match number % 2 {
                0 => self.short_life(&sandbox, number).await,
                _ => self.steady_life(&sandbox, number).await,
            };
            if excuse == Err(Excuse::Runtime) {
                return;
            }
        }
    }

    /// Commands meet a container that is about to end.
    async fn short_life(&self, sandbox: &str, number: i32) -> Result<(), Excuse> {
        let (name, id, code) = self.begin(sandbox, Script::Short, number).await?;
        loop {
            match self.client.exec(&id, 7).await {
                Ok(told) => self.ledger.check_session(&name, &id, told, 7, Script::Short),
                // It has ended.
                Err(status) if status.code() == Code::FailedPrecondition => break,
                Err(status) => return Err(self.ledger.excuse(&id, &status)),
            }
            self.done.add_permits(1);
        }
        self.end(&name, &id, code, number % 4 == 0).await
    }

    async fn steady_life(&self, sandbox: &str, number: i32) -> Result<(), Excuse> {
        let (name, id, code) = self.begin(sandbox, Script::Steady, number).await?;
        let told = self.step(&id, self.client.exec_when_ready(&id, 8).await)?;
        self.ledger.check_session(&name, &id, told, 8, Script::Steady);
        self.step(&id, self.client.stop(&id).await)?;
        self.end(&name, &id, code, number % 4 == 1).await
    }

    async fn begin(
        &self,
        sandbox: &str,
        script: Script,
        number: i32,
    ) -> Result<(String, String, i32), Excuse> {
        let (name, code) = (format!("{}-{number}", self.name), number % 100 + 1);
        self.ledger.ask_creation(&name, script, code);
        let created = self.step("", self.client.create(sandbox, &name, script, code).await);
        if created == Err(Excuse::Spawner) {
            self.ledger.refused(&name);
        }
        let id = created?;
        self.ledger.created(&name, &id);
        self.ledger.ask_start(&name);
        self.step(&id, self.client.start(&id).await)?;
        self.ledger.started(&name);
        Ok((name, id, code))
    }

    async fn end(&self, name: &str, id: &str, code: i32, remove: bool) -> Result<(), Excuse> {
        let status = self.step(id, ended(&self.client, id).await)?;
        self.ledger.check_end(code, &status);
        self.ledger.ended(name, &status);
        if remove {
            self.ledger.ask_removal(name);
            self.step(id, self.client.remove(id).await)?;
            self.ledger.removed(name);
        }
        Ok(())
    }

    fn step<T>(&self, id: &str, result: Result<T, Status>) -> Result<T, Excuse> {
        let value = result.map_err(|status| self.ledger.excuse(id, &status))?;
        self.done.add_permits(1);
        Ok(value)
    }
}
