//! The authenticators of a process: equal plugins for the same cluster share one.

use std::{
    collections::HashMap,
    ffi::OsString,
    net::IpAddr,
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use http::Uri;
use kube::Config;
use tracing::warn;

use crate::{
    Authenticator, ClusterInfo, ExecStanza, MetricSink, Options, Policy, StanzaError,
    metrics::Events,
};

static OF_THIS_PROCESS: LazyLock<Arc<Authenticators>> =
    LazyLock::new(|| Arc::new(Authenticators::default()));

/// Finds the authenticator of a configuration.
#[derive(Default)]
pub struct Authenticators {
    known: Mutex<HashMap<Key, Arc<Authenticator>>>,
    events: Arc<Events>,
}

/// Everything that could make a difference to a plugin, or to whether it may run.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    stanza: ExecStanza,
    cluster: ClusterInfo,
    environment: Vec<(OsString, OsString)>,
    policy: Policy,
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
    /// there is no plugin, or if a static credential takes precedence over it. Errors name `user`. Nor is there one for a server that
    /// is reached without TLS, unless it is this machine: everybody on the way could read the credential.
    ///
    /// The options count for whoever asks first, but for the environment and the policy: who has others has another plugin.
    pub fn take_plugin(
        &self,
        user: &str,
        config: &mut Config,
        options: &Options,
    ) -> Result<Option<Arc<Authenticator>>, StanzaError> {
        let stanza = ExecStanza::of_user(user, &config.auth_info)?;
        let cluster = ClusterInfo::of(config);
        config.auth_info.exec = None;
        if stanza.is_some() && is_overheard(&config.cluster_url) {
            warn!(
                server = %config.cluster_url,
                "credential plugin is not run: without TLS everybody on the way could read its credential"
            );
            return Ok(None);
        }
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
        let (environment, policy) = (options.environment.clone(), options.policy.clone());
        let key = Key { stanza, cluster, environment, policy };
        if let Some(found) = known.get(&key) {
            return Arc::clone(found);
        }
        // A process that serves many users does not keep what nobody can use any more.
        known.retain(|_, other| Arc::strong_count(other) > 1 || other.is_of_use());
        let (stanza, cluster) = (key.stanza.clone(), key.cluster.clone());
        let made = Authenticator::new(stanza, cluster, options.clone(), Arc::clone(&self.events));
        let made = Arc::new(made);
        known.insert(key, Arc::clone(&made));
        made
    }
}

/// Whether others can read what is sent to `server`.
fn is_overheard(server: &Uri) -> bool {
    let host = server.host().unwrap_or_default().trim_matches(['[', ']']);
    let is_here = host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    server.scheme_str() != Some("https") && !is_here
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hole: kubectl neither runs a plugin for such a server nor shows it a token.
    #[test]
    fn a_server_that_others_can_listen_to_gets_no_credential() {
        for (server, expected) in [
            ("http://example.com:8080", true),
            ("http://192.0.2.1", true),
            ("http://127.0.0.1.example.com", true),
            ("https://example.com", false),
            ("http://127.0.0.1:8001", false),
            ("http://[::1]:8001", false),
            ("http://localhost", false),
        ] {
            assert_eq!(is_overheard(&server.parse().unwrap()), expected, "{server}");
        }
    }
}
