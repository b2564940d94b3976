//! What a browser says: answers to calls, and events.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Read},
    sync::{Condvar, Mutex, MutexGuard, PoisonError, mpsc::Sender},
    time::Duration,
};

use serde_json::Value;

/// Everything that was said so far.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    calls: HashMap<u64, Sender<Value>>,
    events: Vec<Value>,
    is_over: bool,
}

impl Messages {
    /// Reads to the end.
    pub(super) fn read(&self, from: impl Read) {
        let mut from = BufReader::new(from);
        let mut message = Vec::new();
        while from.read_until(0, &mut message).is_ok_and(|length| length > 0) {
            message.pop();
            if let Ok(value) = serde_json::from_slice::<Value>(&message) {
                self.take(value);
            }
            message.clear();
        }
        let mut state = self.lock();
        state.is_over = true;
        state.calls.clear();
        self.changed.notify_all();
    }

    /// The answer to this call goes there.
    pub(super) fn expect(&self, id: u64, answer: Sender<Value>) {
        self.lock().calls.insert(id, answer);
    }

    /// Returns when the browser has ended, or the time is over.
    pub(super) fn wait_for_end(&self, limit: Duration) {
        let state = self.lock();
        drop(self.changed.wait_timeout_while(state, limit, |state| !state.is_over));
    }

    /// The first event of a tab from the `from`th on that `wanted` takes; `None` when the time is over.
    pub(super) fn wait_for(
        &self,
        from: usize,
        limit: Duration,
        wanted: impl Fn(&Value) -> bool,
    ) -> Option<Value> {
        let find =
            |state: &State| state.events.get(from..)?.iter().find(|event| wanted(event)).cloned();
        let state = self.lock();
        let waits = |state: &mut State| !state.is_over && find(state).is_none();
        let waited = self.changed.wait_timeout_while(state, limit, waits);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        find(&state)
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.lock().events.len()
    }

    /// All events of one tab with this name.
    pub(super) fn named(&self, session: &str, method: &str) -> Vec<Value> {
        let state = self.lock();
        let wanted = state
            .events
            .iter()
            .filter(|event| event["sessionId"] == session && event["method"] == method);
        wanted.map(|event| event["params"].clone()).collect()
    }

    fn take(&self, message: Value) {
        let mut state = self.lock();
        match message["id"].as_u64() {
            Some(id) => {
                // Whoever asked may have given up.
                let _ = state.calls.remove(&id).map(|answer| answer.send(message));
            }
            None => state.events.push(message),
        }
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
