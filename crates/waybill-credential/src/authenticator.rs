//! One plugin in one process: its credential, and who may ask it for the next.
//!
//! A credential that is there costs an atomic load. Whoever needs another starts the plugin or waits for
//! whoever has: there is never more than one run, and it ends when nobody waits for it any more. After a
//! failure the plugin is left alone for a while, and those who ask meanwhile get the same error.

use std::{
    fmt,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use arc_swap::ArcSwapOption;
use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared, WeakShared},
};

use crate::{
    ClusterInfo, Credential, CredentialError, ExecStanza, Options, PluginError, StdinError,
    backoff::Backoff,
    hint::Hint,
    lookup,
    metrics::{CallStatus, Events, policy_verdict},
    run::run,
};

/// Numbers credentials and authenticators of a process.
static SEQUENCE: AtomicU64 = AtomicU64::new(1);

/// Knows the credential of one plugin for one cluster. Get it from [`crate::Authenticators`].
pub struct Authenticator {
    stanza: ExecStanza,
    cluster: ClusterInfo,
    options: Options,
    current: ArcSwapOption<Credential>,
    state: Mutex<State>,
    hint: Hint,
    events: Arc<Events>,
    number: u64,
}

type Outcome = Result<Arc<Credential>, Arc<PluginError>>;
type Run = BoxFuture<'static, Outcome>;

#[derive(Default)]
struct State {
    /// The run under way. It belongs to those who wait for it.
    run: Option<WeakShared<Run>>,
    /// After runs that failed.
    failures: Backoff,
    last_error: Option<Arc<PluginError>>,
    /// After servers refused what the plugin gave.
    refusals: Backoff,
}

/// What became of a credential that a server refused.
#[derive(Debug)]
pub enum Renewal {
    /// There is another one, which may be tried.
    Changed(Arc<Credential>),
    /// The plugin gave the same again, or is not asked so soon after the last time.
    Unchanged,
    /// The plugin failed. The credential is kept: the server may have been wrong.
    Failed(CredentialError),
}

/// Why the plugin shall run.
#[derive(Clone)]
enum Need {
    /// There is no credential, or it has expired.
    Credential,
    /// The credential will expire soon.
    Early,
    /// A server refused this one.
    Another(Arc<Credential>),
}

impl Authenticator {
    pub(crate) fn new(
        stanza: ExecStanza,
        cluster: ClusterInfo,
        options: Options,
        events: Arc<Events>,
    ) -> Self {
        Self {
            stanza,
            cluster,
            options,
            current: ArcSwapOption::empty(),
            state: Mutex::default(),
            hint: Hint::default(),
            events,
            number: SEQUENCE.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// The credential for the next request. Runs the plugin if there is none that is valid.
    pub async fn credential(self: &Arc<Self>) -> Result<Arc<Credential>, CredentialError> {
        match self.cached() {
            Some(cached) => Ok(cached),
            None => self.obtain(Need::Credential).await.map_err(CredentialError),
        }
    }

    /// The credential that is there, if it is valid. Shortly before its end the next one is asked for in the
    /// background.
    pub fn cached(self: &Arc<Self>) -> Option<Arc<Credential>> {
        let current = self.current.load();
        let current = current.as_ref()?;
        if current.expires().is_some() {
            let now = self.options.clock.now();
            if current.is_expired(now) {
                return None;
            }
            if current.is_due(now) {
                self.renew_in_background();
            }
        }
        Some(Arc::clone(current))
    }

    /// A server answered 401 to a request with `refused`.
    pub async fn renew(self: &Arc<Self>, refused: &Arc<Credential>) -> Renewal {
        match self.obtain(Need::Another(Arc::clone(refused))).await {
            Ok(found) if found.is_same_as(refused) => Renewal::Unchanged,
            Ok(found) => Renewal::Changed(found),
            Err(error) => Renewal::Failed(CredentialError(error)),
        }
    }

    /// How to run the plugin.
    pub fn stanza(&self) -> &ExecStanza {
        &self.stanza
    }

    /// Where the plugin's program is, if it is anywhere.
    pub fn program(&self) -> Option<PathBuf> {
        lookup::find(&self.stanza.command, self.options.path()).filter(|program| program.exists())
    }

    /// Whether the plugin would get standard input now.
    pub fn lends_stdin(&self) -> Result<bool, StdinError> {
        self.options.stdin.is_for(self.stanza.interactive_mode)
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// Whether its credential could still serve somebody.
    pub(crate) fn is_of_use(&self) -> bool {
        let now = self.options.clock.now();
        self.current.load().as_ref().is_some_and(|current| !current.is_expired(now))
    }

    async fn obtain(self: &Arc<Self>, need: Need) -> Outcome {
        match self.decide(&need) {
            Decision::Have(outcome) => outcome,
            Decision::Wait(run) => run.await,
        }
    }

    /// Under the lock: somebody else may have been faster.
    fn decide(self: &Arc<Self>, need: &Need) -> Decision {
        let mut state = self.lock();
        if let Some(found) = self.satisfying(need) {
            return Decision::Have(Ok(found));
        }
        if let Some(run) = state.run.as_ref().and_then(WeakShared::upgrade) {
            return Decision::Wait(run);
        }
        let now = self.options.clock.monotonic();
        if let (Some(_), Some(error)) = (state.failures.remaining(now), &state.last_error) {
            return Decision::Have(Err(Arc::clone(error)));
        }
        if let Need::Another(refused) = need
            && state.refusals.remaining(now).is_some()
        {
            return Decision::Have(Ok(Arc::clone(refused)));
        }
        let run = Arc::clone(self).run(need.clone()).boxed().shared();
        state.run = run.downgrade();
        Decision::Wait(run)
    }

    /// The current credential, if it is what is needed.
    fn satisfying(&self, need: &Need) -> Option<Arc<Credential>> {
        let current = self.current.load_full()?;
        let now = self.options.clock.now();
        let serves = match need {
            Need::Credential => !current.is_expired(now),
            Need::Early => !current.is_due(now),
            Need::Another(refused) => !Arc::ptr_eq(&current, refused),
        };
        serves.then_some(current)
    }

    /// Nobody waits for it, and nobody learns of its failure: the credential is still valid. A plugin that might ask a
    /// person something is not run behind their back.
    fn renew_in_background(self: &Arc<Self>) {
        let interactive = self.lends_stdin();
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if interactive != Ok(false) {
            return;
        }
        if let Decision::Wait(run) = self.decide(&Need::Early)
            && run.strong_count() == Some(1)
        {
            // It ends with the plugin, whose time is bounded.
            drop(runtime.spawn(run.map(drop)));
        }
    }

    /// The one run that there is at a time.
    async fn run(self: Arc<Self>, need: Need) -> Outcome {
        let asked = self.ask().await;
        let mut state = self.lock();
        state.run = None;
        let now = self.options.clock.monotonic();
        match asked {
            Ok(credential) => {
                state.failures.succeeded();
                state.last_error = None;
                Ok(self.take(credential, &need, &mut state))
            }
            Err(error) => {
                let error = Arc::new(error);
                state.failures.failed(now);
                state.last_error = Some(Arc::clone(&error));
                tracing::debug!(command = self.stanza.command, %error, "credential plugin failed");
                Err(error)
            }
        }
    }

    async fn ask(&self) -> Result<Credential, PluginError> {
        let printed = run(&self.stanza, &self.cluster, &self.options).await;
        if let Some(allowed) = policy_verdict(printed.as_ref().map(drop)) {
            self.events.count_policy_check(allowed);
        }
        if let Some((code, status)) = CallStatus::of(printed.as_ref().map(drop)) {
            self.events.count_call(code, status);
        }
        let printed = printed.map_err(|error| self.with_help(error))?;
        Credential::from_answer(&printed, self.stanza.api_version, self.options.clock.now())
    }

    fn with_help(&self, error: PluginError) -> PluginError {
        match error {
            PluginError::NotFound { command, .. } => {
                let now = self.options.clock.monotonic();
                let help = self.hint.text(&self.stanza.install_hint, now);
                PluginError::NotFound { command, help }
            }
            other => other,
        }
    }

    /// Makes `credential` the current one.
    fn take(&self, mut credential: Credential, need: &Need, state: &mut State) -> Arc<Credential> {
        credential.sequence = SEQUENCE.fetch_add(1, Ordering::Relaxed);
        if let Need::Another(refused) = need {
            credential.after_refusal = true;
            // A server that refuses whatever the plugin gives would otherwise have it run for each request.
            let in_vain = refused.after_refusal && !refused.was_accepted();
            if credential.is_same_as(refused) || in_vain {
                state.refusals.failed(self.options.clock.monotonic());
            } else {
                state.refusals.succeeded();
            }
        }
        let credential = Arc::new(credential);
        self.tell(&credential, self.current.swap(Some(Arc::clone(&credential))).as_deref());
        credential
    }

    fn tell(&self, credential: &Credential, replaced: Option<&Credential>) {
        let now = self.options.clock.now();
        let certificate = credential.certificate();
        if let Some(certificate) = certificate
            && !(certificate.not_before()..certificate.not_after()).contains(&now)
        {
            tracing::warn!(
                command = self.stanza.command,
                not_before = %certificate.not_before(),
                not_after = %certificate.not_after(),
                "the certificate of the credential plugin is not valid now; it is used all the same"
            );
        }
        let replaced = replaced.and_then(Credential::certificate);
        if let Some(replaced) = replaced
            && certificate.is_none_or(|certificate| !certificate.is_same_as(replaced))
        {
            let age = now.duration_since(replaced.not_before());
            self.events.observe_rotation_age(age.try_into().unwrap_or_default());
        }
        self.events.set_expiry(self.number, certificate.map(|found| found.not_after()));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Authenticator {
    fn drop(&mut self) {
        self.events.set_expiry(self.number, None);
    }
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authenticator")
            .field("stanza", &self.stanza)
            .field("cluster", &self.cluster)
            .field("credential", &self.current.load())
            .finish_non_exhaustive()
    }
}

enum Decision {
    Have(Outcome),
    Wait(Shared<Run>),
}
