//! The ProviderClasses of the cluster, followed by a watch.
//!
//! Whether the picture is current is known, not guessed: it is while a watch is open. A class that is
//! not in it is asked for once more, because it may have been made a moment ago, and nobody should be
//! refused for being quick.

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::StreamExt;
use kube::{
    Api, Client,
    api::{ListParams, WatchParams},
    core::{ApiResource, DynamicObject, GroupVersionKind, WatchEvent},
};
use tokio::time::{sleep, timeout};
use waybill_api::{
    names::subdomain_faults,
    provider_class::{KIND, ProviderClass, RESOURCE},
};

use super::JudgeError;

/// The first wait after a failure; it doubles each time.
const BACKOFF: Duration = Duration::from_millis(500);

/// The longest wait.
const LONGEST: Duration = Duration::from_secs(15);

/// How long a list, or the beginning of a watch, may take.
const LIMIT: Duration = Duration::from_secs(10);

/// Shorter than a webhook may take.
const LOOK_UP: Duration = Duration::from_secs(3);

/// How long the API server keeps a watch open. Shorter than it would, so that a connection that died
/// unnoticed is noticed.
const WATCH_SECONDS: u32 = 120;

/// What is known of the cluster's classes.
pub(super) struct Classes {
    api: Api<DynamicObject>,
    known: Mutex<Known>,
}

struct Known {
    classes: BTreeMap<String, Arc<ProviderClass>>,
    /// Why the picture is not current.
    fault: Option<String>,
}

impl Classes {
    pub(super) fn new(client: Client, group: &str) -> Self {
        let kind = GroupVersionKind::gvk(group, "v1", KIND);
        let api = Api::all_with(client, &ApiResource::from_gvk_with_plural(&kind, RESOURCE));
        let fault = Some("the classes of the cluster have not been read yet".to_owned());
        Self { api, known: Mutex::new(Known { classes: BTreeMap::new(), fault }) }
    }

    /// Follows the classes, for ever.
    pub(super) async fn follow(&self) {
        let mut wait = BACKOFF;
        loop {
            let fault = match self.list().await {
                Ok(version) => {
                    wait = BACKOFF;
                    self.watch(version).await
                }
                Err(fault) => fault,
            };
            tracing::warn!(fault, "ProviderClasses cannot be followed, trying again");
            self.lock().fault = Some(fault);
            sleep(wait).await;
            wait = (wait * 2).min(LONGEST);
        }
    }

    /// The class of this name; `None` if there is none.
    pub(super) async fn find(&self, name: &str) -> Result<Option<Arc<ProviderClass>>, JudgeError> {
        // No class can be called otherwise, and the name becomes part of an address.
        if !subdomain_faults(name).is_empty() {
            return Ok(None);
        }
        {
            let known = self.lock();
            if let Some(fault) = &known.fault {
                return Err(JudgeError::Classes(fault.clone()));
            }
            if let Some(class) = known.classes.get(name) {
                return Ok(Some(Arc::clone(class)));
            }
        }
        match timeout(LOOK_UP, self.api.get_opt(name)).await {
            Ok(Ok(found)) => Ok(found.and_then(read).map(|(_, class)| class)),
            Ok(Err(error)) => Err(JudgeError::Class(Box::new(error))),
            Err(_) => Err(JudgeError::Classes("the API server did not answer".to_owned())),
        }
    }

    /// Why the picture is not current; `None` if it is.
    pub(super) fn fault(&self) -> Option<String> {
        self.lock().fault.clone()
    }

    /// How many classes are known.
    pub(super) fn count(&self) -> usize {
        self.lock().classes.len()
    }

    /// Reads all classes; returns the version from which to watch.
    async fn list(&self) -> Result<String, String> {
        let parameters = ListParams::default();
        let list = timeout(LIMIT, self.api.list(&parameters)).await;
        let list = list.map_err(|_| "the API server did not answer".to_owned())?;
        let list = list.map_err(|error| format!("ProviderClasses cannot be listed: {error}"))?;
        self.lock().classes = list.items.into_iter().filter_map(read).collect();
        Ok(list.metadata.resource_version.unwrap_or_default())
    }

    /// Follows changes until they cannot be followed; returns why.
    async fn watch(&self, mut version: String) -> String {
        loop {
            let parameters = WatchParams::default().timeout(WATCH_SECONDS);
            let opened = timeout(LIMIT, self.api.watch(&parameters, &version)).await;
            let changes = match opened {
                Ok(Ok(changes)) => changes,
                Ok(Err(error)) => return format!("ProviderClasses cannot be watched: {error}"),
                Err(_) => return "the API server did not answer".to_owned(),
            };
            self.lock().fault = None;
            let mut changes = pin!(changes);
            while let Some(change) = changes.next().await {
                match change {
                    Ok(change) => match self.take(change) {
                        Ok(Some(newer)) => version = newer,
                        Ok(None) => {}
                        Err(fault) => return fault,
                    },
                    Err(error) => return format!("the watch broke off: {error}"),
                }
            }
        }
    }

    /// Takes note of a change; returns the version that it led to.
    fn take(&self, change: WatchEvent<DynamicObject>) -> Result<Option<String>, String> {
        match change {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                let version = object.metadata.resource_version.clone();
                let name = object.metadata.name.clone().unwrap_or_default();
                let mut known = self.lock();
                // One that is not understood any more allows nothing any more.
                known.classes.remove(&name);
                known.classes.extend(read(object));
                Ok(version)
            }
            WatchEvent::Deleted(object) => {
                self.lock().classes.remove(object.metadata.name.as_deref().unwrap_or_default());
                Ok(object.metadata.resource_version)
            }
            WatchEvent::Bookmark(bookmark) => Ok(Some(bookmark.metadata.resource_version)),
            WatchEvent::Error(status) => Err(format!("the watch was ended: {}", status.message)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The class and its name. One that is not understood is left out, and so allows nothing.
fn read(object: DynamicObject) -> Option<(String, Arc<ProviderClass>)> {
    let name = object.metadata.name.clone()?;
    let class = serde_json::to_value(object).and_then(serde_json::from_value::<ProviderClass>);
    match class {
        Ok(class) => Some((name, Arc::new(class))),
        Err(error) => {
            tracing::warn!(name, %error, "a ProviderClass is not understood");
            None
        }
    }
}
