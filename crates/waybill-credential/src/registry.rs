//! The authenticators of a process: equal plugins for the same cluster share one.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use kube::Config;

use crate::{
    Authenticator, ClusterInfo, ExecStanza, MetricSink, Options, StanzaError, metrics::Events,
};

static OF_THIS_PROCESS: LazyLock<Arc<Authenticators>> =
    LazyLock::new(|| Arc::new(Authenticators::default()));

/// Finds the authenticator of a configuration.
#[derive(Default)]
pub struct Authenticators {
    /// By everything that could make a difference to a plugin.
    known: Mutex<HashMap<(ExecStanza, ClusterInfo), Arc<Authenticator>>>,
    events: Arc<Events>,
}

impl Authenticators {
    /// Those that everybody in this process shares. Credentials are in memory only, so another process has none
    /// of them.
    pub fn of_this_process() -> Arc<Self> {
        Arc::clone(&OF_THIS_PROCESS)
    }

    /// Tells `sink` of what plugins do from now on.
    pub fn add_sink(&self, sink: Arc<dyn MetricSink>) {
        self.events.add_sink(sink);
    }

    /// Takes the `exec` stanza out of `config`, so that `kube` does not run the plugin itself, and returns who runs it. `None` if
    /// there is no plugin, or if a static credential takes precedence over it. Errors name `user`.
    ///
    /// The options count for whoever asks first.
    pub fn take_plugin(
        &self,
        user: &str,
        config: &mut Config,
        options: &Options,
    ) -> Result<Option<Arc<Authenticator>>, StanzaError> {
        let stanza = ExecStanza::of_user(user, &config.auth_info)?;
        let cluster = ClusterInfo::of(config);
        config.auth_info.exec = None;
        Ok(stanza.map(|stanza| self.find(stanza, cluster, options)))
    }

    fn find(
        &self,
        stanza: ExecStanza,
        cluster: ClusterInfo,
        options: &Options,
    ) -> Arc<Authenticator> {
        // Each change is a single map operation.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (stanza, cluster);
        if let Some(found) = known.get(&key) {
            return Arc::clone(found);
        }
        // A process that serves many users does not keep what nobody can use any more.
        known.retain(|_, other| Arc::strong_count(other) > 1 || other.is_of_use());
        let (stanza, cluster) = key.clone();
        let made = Authenticator::new(stanza, cluster, options.clone(), Arc::clone(&self.events));
        let made = Arc::new(made);
        known.insert(key, Arc::clone(&made));
        made
    }
}
