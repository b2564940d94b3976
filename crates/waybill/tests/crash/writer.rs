//! A client that creates, changes and deletes, and keeps a ledger of what it was told.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::Semaphore;
use waybill_testkit::apiserver::ApiServer;

use crate::{
    client::Client,
    ledger::{Ledger, version},
};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// What writers write, without the one map that the server itself writes.
pub(crate) const WRITTEN: &str =
    "/api/v1/namespaces/default/configmaps?fieldSelector=metadata.name!=kube-root-ca.crt";

/// Writes under names of its own, one write after the other.
pub(crate) struct Writer {
    client: Client,
    ledger: Ledger,
    /// Gets a permit for each acknowledged write.
    acknowledged: Arc<Semaphore>,
    prefix: String,
    written: usize,
}

/// What became of a write.
pub(crate) enum Answer {
    Acknowledged,
    /// The server answered, and could not say that the write is safe.
    Refused(u16, Value),
    /// The connection broke.
    Lost,
}

impl Writer {
    pub(crate) async fn connect(
        server: &ApiServer,
        ledger: &Ledger,
        acknowledged: &Arc<Semaphore>,
        prefix: String,
    ) -> Self {
        let client = Client::connect(server).await.expect("the server takes connections");
        let (ledger, acknowledged) = (ledger.clone(), Arc::clone(acknowledged));
        Self { client, ledger, acknowledged, prefix, written: 0 }
    }

    /// Of four writes, two create, one changes the first of these and one deletes the second.
    pub(crate) async fn write(&mut self) -> Answer {
        let (group, step) = (self.written / 4, self.written % 4);
        self.written += 1;
        let name = |which: &str| format!("{}-{group}-{which}", self.prefix);
        let (method, name) = match step {
            0 => ("POST", name("kept")),
            1 => ("POST", name("deleted")),
            2 => ("PATCH", name("kept")),
            _ => ("DELETE", name("deleted")),
        };
        let (path, body) = match method {
            "POST" => (
                MAPS.to_owned(),
                format!(
                    r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}}}}"#
                ),
            ),
            "PATCH" => (format!("{MAPS}/{name}"), r#"{"data":{"changed":"yes"}}"#.to_owned()),
            _ => (format!("{MAPS}/{name}"), String::new()),
        };
        self.ledger.ask(&name);
        let Ok((code, answer)) = self.client.send(method, &path, &body).await else {
            return Answer::Lost;
        };
        if !matches!(code, 200 | 201) {
            return Answer::Refused(code, answer);
        }
        let version = (method != "DELETE").then(|| version(&answer));
        self.ledger.acknowledge(&name, version);
        self.acknowledged.add_permits(1);
        Answer::Acknowledged
    }
}
