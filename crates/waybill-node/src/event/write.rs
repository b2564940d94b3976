//! From the queue to the API server.

use std::time::Duration;

use k8s_openapi::{
    api::core::v1::{Event, EventSource},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::{sync::mpsc, time::sleep};
use tokio_util::sync::CancellationToken;
use tracing::warn;
use waybill_core::chain::Chain;

use super::{
    COMPONENT, Note,
    history::{History, Step, Written},
};
use crate::retry::Pauses;

/// A note is given up after as many failures, so that later ones get their turn.
const TRIES: u32 = 6;

/// Writes notes until there are no more to come.
pub(super) async fn run(
    client: Client,
    node: String,
    mut queue: mpsc::Receiver<Note>,
    stop: CancellationToken,
) {
    let mut writer = Writer { client, node, history: History::default() };
    while let Some(Some(note)) = stop.run_until_cancelled(queue.recv()).await {
        if stop.run_until_cancelled(writer.write(&note)).await.is_none() {
            return;
        }
    }
}

struct Writer {
    client: Client,
    node: String,
    history: History,
}

impl Writer {
    async fn write(&mut self, note: &Note) {
        let (mut written, mut is_new) = match self.history.step(note) {
            Step::Create(written) => (written, true),
            Step::Raise(written) => (written, false),
            Step::Mute => return,
        };
        let mut pauses = Pauses::new(Duration::from_millis(200), Duration::from_secs(5));
        for _ in 0..TRIES {
            let sent = if is_new {
                self.create(note, &written).await
            } else {
                self.raise(note, &written).await
            };
            match sent {
                Ok(()) => return,
                Err(kube::Error::Api(status)) if status.is_not_found() && !is_new => {
                    // Events expire. What is counted began just now.
                    is_new = true;
                    (written.count, written.first) = (1, note.at);
                }
                Err(kube::Error::Api(status)) if status.is_already_exists() => return,
                Err(kube::Error::Api(status)) if matches!(status.code, 400..=428) => {
                    // Such as a namespace that is going away: trying again does not help.
                    warn!(code = status.code, reason = note.reason, "an event was refused");
                    break;
                }
                Err(error) => {
                    warn!(error = %Chain(&error), "cannot write an event yet");
                    sleep(pauses.next()).await;
                }
            }
        }
        self.history.forget(note);
    }

    async fn create(&self, note: &Note, written: &Written) -> Result<(), kube::Error> {
        let event = event(note, written, &self.node);
        self.api(note).create(&PostParams::default(), &event).await.map(drop)
    }

    async fn raise(&self, note: &Note, written: &Written) -> Result<(), kube::Error> {
        let change = json!({"count": written.count, "lastTimestamp": Time(written.last)});
        let parameters = PatchParams::default();
        self.api(note).patch(&written.name, &parameters, &Patch::Merge(change)).await.map(drop)
    }

    fn api(&self, note: &Note) -> Api<Event> {
        Api::namespaced(self.client.clone(), namespace(note))
    }
}

/// Events about what has no namespace stand in `default`.
fn namespace(note: &Note) -> &str {
    note.about.namespace.as_deref().unwrap_or("default")
}

fn event(note: &Note, written: &Written, node: &str) -> Event {
    Event {
        metadata: ObjectMeta {
            name: Some(written.name.clone()),
            namespace: Some(namespace(note).to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: note.about.clone(),
        type_: Some(note.kind.as_str().to_owned()),
        reason: Some(note.reason.clone()),
        message: Some(note.message.clone()),
        count: Some(written.count),
        first_timestamp: Some(Time(written.first)),
        last_timestamp: Some(Time(written.last)),
        source: Some(EventSource {
            component: Some(COMPONENT.to_owned()),
            host: Some(node.to_owned()),
        }),
        reporting_component: Some(COMPONENT.to_owned()),
        reporting_instance: Some(node.to_owned()),
        ..Event::default()
    }
}
