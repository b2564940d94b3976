//! Variables from CSI drivers: fetched at each start of a container, kept nowhere (CSI-30).
//!
//! ```text
//!   container ──► one group for each class ──► checks: class, driver, namespace, keys, `use`, words
//!                                                 │ all groups at once
//!                                                 ▼
//!   driver ◄──NodeGetEnvVars, one call, tried again as the rules say── connection, capability, limits
//!      └──results──► judged as a whole ──► values, or one error for the class
//! ```
//!
//! Nothing is started for a container that ends: whoever drops the future ends every call (CSI-41).

mod access;
mod answer;
mod call;
mod class;
mod connection;
mod csi_node;
mod drivers;
mod error;
mod in_flight;
mod limits;
mod place;
mod registration;
mod rotation;
#[cfg(test)]
pub(crate) mod testing;
mod token;

use std::{collections::BTreeMap, fmt, path::PathBuf, sync::Arc, time::Duration};

use futures_util::future::join_all;
use k8s_openapi::api::storage::v1::CSIDriver;
use kube::Client;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{debug, info};
use waybill_api::{
    pod::{Container, CsiSecretSelector, allows_csi_words, csi_words},
    provider_class::hints::Hints,
};
use waybill_core::{
    env::value::EnvValue,
    id::{DriverName, PodUid},
    secret::SecretBytes,
};

use self::{
    access::service_account, answer::Answer, class::WatchedClass, csi_node::CsiNodeKeeper,
    registration::Registry,
};
pub(crate) use self::{
    drivers::Drivers,
    error::{CsiError, ErrorType},
    limits::FallbackReason,
    rotation::Rotations,
};
use crate::{
    event::{Kind, Recorder},
    objects::{ObjectSource, WatchedError, WatchedObjects},
    pod::{Pod, PodOrigin},
    server::Metrics,
};

/// The runtime that writes no environment to a disk: ours.
const IN_MEMORY: &str = "waybill";

/// How calls to drivers are made, where neither the driver nor the class says (CSI-33, CSI-35).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsiConfig {
    /// Below it every driver has a directory with its socket.
    pub plugins_dir: PathBuf,
    /// Where drivers leave the sockets by which they register.
    pub registry_dir: PathBuf,
    /// Longest time for one call.
    pub rpc_timeout: Duration,
    /// How often a call that failed is made again.
    pub rpc_retries: u32,
    /// The pause before the first of these; each further one is twice as long.
    pub retry_backoff: Duration,
    /// Whether values may reach a runtime that is not known to keep environments off the disk.
    pub allow_disk: bool,
}

/// Fetches variables. One for the node.
pub(crate) struct Csi {
    pub(crate) config: CsiConfig,
    pub(crate) node: String,
    /// As the runtime calls itself.
    pub(crate) runtime: String,
    pub(crate) drivers: Arc<Drivers>,
    /// Without one there are no classes, and nobody may use any.
    pub(crate) client: Option<Client>,
    pub(crate) classes: WatchedObjects<WatchedClass>,
    pub(crate) csi_drivers: WatchedObjects<CSIDriver>,
    pub(crate) objects: Arc<dyn ObjectSource>,
    pub(crate) recorder: Recorder,
    pub(crate) metrics: Arc<Metrics>,
    /// What containers run on that want to hear of changes.
    pub(crate) rotations: Rotations,
}

/// Whose variables are fetched.
#[derive(Clone, Copy)]
pub(crate) struct Asker<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) container: &'a Container,
}

/// One variable of a container.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CsiVariable<'a> {
    /// Its place among the definitions of the container.
    pub(crate) position: usize,
    pub(crate) name: &'a str,
    pub(crate) selector: &'a CsiSecretSelector,
}

/// What came of all variables of one container.
#[derive(Debug, Default)]
pub(crate) struct Fetched {
    /// By the position of the variable. An optional one may be missing.
    pub(crate) values: BTreeMap<usize, EnvValue>,
    pub(crate) injected: Vec<Injected>,
    pub(crate) failures: Vec<ClassFailure>,
}

/// A class that gave what was asked of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Injected {
    driver: String,
    class: String,
}

/// A class that did not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClassFailure {
    driver: String,
    class: String,
    /// The variables that the container lacks for it.
    pub(crate) names: Vec<String>,
    pub(crate) error: CsiError,
}

impl fmt::Display for ClassFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { driver, class, error, .. } = self;
        write!(f, "driver {driver:?}, ProviderClass {class:?}: {error}")
    }
}

/// The variables of a container that one class gives.
struct Group<'a> {
    class: &'a str,
    variables: Vec<CsiVariable<'a>>,
}

/// A group that passed every check.
struct Checked {
    driver: DriverName,
    class: Arc<WatchedClass>,
    tokens: Option<SecretBytes>,
    /// How often a call that failed is made again.
    retries: u32,
}

/// What a class gave: values by position, and what it left out with the driver's reason.
struct Given {
    values: Vec<(usize, EnvValue)>,
    omitted: Vec<(String, String)>,
    /// How often the class wants to be asked again for containers that run.
    refresh_interval: Option<Duration>,
}

impl Csi {
    /// The variables of one container, each class asked once and all at the same time (CSI-23).
    pub(crate) async fn fetch(&self, asker: Asker<'_>, variables: &[CsiVariable<'_>]) -> Fetched {
        let groups = groups(variables);
        let outcomes = join_all(groups.iter().map(|group| self.fetch_group(asker, group))).await;
        let mut fetched = Fetched::default();
        let mut all = Vec::new();
        for (group, outcome) in groups.iter().zip(outcomes) {
            match outcome {
                Ok(given) => all.push((group, given)),
                Err(error) => fetched.failures.push(group.failure(error)),
            }
        }
        if fetched.failures.is_empty() {
            self.remember(asker, &all).await;
        }
        for (group, given) in all {
            fetched.values.extend(given.values);
            fetched.injected.push(group.injected());
        }
        fetched
    }

    /// Follows the drivers that register, and tells the cluster of them.
    pub(crate) fn follow_drivers(&self, tasks: &TaskTracker, stop: &CancellationToken) {
        let (directory, drivers) = (&self.config.registry_dir, Arc::clone(&self.drivers));
        let registry = Registry::new(directory, drivers, tasks, stop);
        tasks.spawn(stop.clone().run_until_cancelled_owned(registry.run()));
        if let Some(client) = self.client.clone() {
            let registered = self.drivers.registered();
            let keeper = CsiNodeKeeper::new(client, &self.node, registered, csi_node::LOOK);
            tasks.spawn(stop.clone().run_until_cancelled_owned(keeper.run()));
        }
    }

    /// Called when a pod is gone.
    pub(crate) fn forget(&self, pod: &PodUid) {
        self.classes.forget(pod);
        self.csi_drivers.forget(pod);
        self.rotations.forget(pod);
    }

    /// Tells the owner of a pod that its variables came.
    pub(crate) fn tell_success(&self, pod: &Pod, container: &str, injected: &[Injected]) {
        for Injected { driver, class } in injected {
            let message = format!(
                "CSI env vars injected successfully: driver {driver:?}, ProviderClass {class:?}, \
                 pod {}/{}",
                pod.namespace(),
                pod.name()
            );
            let reason = "EnvVarInjectionSuccess";
            self.recorder.container(pod, container, Kind::Normal, reason, &message);
        }
    }

    async fn fetch_group(&self, asker: Asker<'_>, group: &Group<'_>) -> Result<Given, CsiError> {
        let (pod, container) = (asker.pod, &*asker.container.name);
        let variables = group.variables.len();
        debug!(pod = pod.name(), container, variables, "CSI environment variables are fetched");
        let checked = self.check(asker, group).await;
        let asked = match &checked {
            Ok(checked) => self.ask(asker, group, checked).await,
            Err(error) => Err(error.clone()),
        };
        let labels = match &checked {
            Ok(checked) => (checked.driver.as_str(), group.class),
            // Names that no administrator has written are no labels.
            Err(
                CsiError::NoClass { .. }
                | CsiError::ClassUnknown { .. }
                | CsiError::StaticPod { .. },
            ) => ("", ""),
            Err(_) => (group.driver(), group.class),
        };
        self.account(asker, group, labels, &asked);
        asked
    }

    /// Counts and tells what came of a group (CSI-51, CSI-53, CSI-56, CSI-63).
    fn account(
        &self,
        asker: Asker<'_>,
        group: &Group<'_>,
        (driver, class): (&str, &str),
        outcome: &Result<Given, CsiError>,
    ) {
        let metrics = self.metrics.csi();
        match outcome {
            Ok(given) if given.omitted.is_empty() => metrics.request(driver, class, "success"),
            Ok(given) => {
                metrics.request(driver, class, "partial");
                for (name, why) in &given.omitted {
                    let why = format!("optional variable {name:?} is left out: {why}");
                    self.warn(asker, group, "optional", &why);
                }
            }
            Err(error) => {
                let error_type = error.error_type();
                metrics.request(driver, class, "failure");
                metrics.error(driver, error_type);
                self.warn(asker, group, error_type.as_str(), &error.to_string());
            }
        }
    }

    fn warn(&self, asker: Asker<'_>, group: &Group<'_>, reason: &str, why: &str) {
        let (pod, container) = (asker.pod, &*asker.container.name);
        let (driver, class) = (group.driver(), group.class);
        let message = format!(
            "CSI env injection failed: {reason}: driver {driver:?}, ProviderClass {class:?}, pod \
             {}/{}: {why}",
            pod.namespace(),
            pod.name()
        );
        info!(pod = pod.name(), namespace = pod.namespace(), container, reason, "{message}");
        self.recorder.container(pod, container, Kind::Warning, "EnvVarInjectionFailed", &message);
    }

    /// Everything that is checked before a driver hears of the container, in this order (CSI-25).
    async fn check(&self, asker: Asker<'_>, group: &Group<'_>) -> Result<Checked, CsiError> {
        let pod = asker.pod;
        let name = || group.class.to_owned();
        if pod.origin() == PodOrigin::File {
            return Err(CsiError::StaticPod { class: name() });
        }
        if self.runtime != IN_MEMORY && !self.config.allow_disk {
            return Err(CsiError::Disk { runtime: self.runtime.clone() });
        }
        let class = match self.classes.get(pod.uid(), group.class).await {
            Ok(Some(class)) => class,
            Ok(None) | Err(WatchedError::NoSuchKind) => {
                return Err(CsiError::NoClass { class: name() });
            }
            Err(error) => {
                return Err(CsiError::ClassUnknown { class: name(), why: error.to_string() });
            }
        };
        let selectors = group.variables.iter().map(|variable| variable.selector);
        let driver = class::check(&class.class, pod.namespace(), selectors)?;
        match &self.client {
            Some(client) => access::check(client, pod, group.class).await?,
            None => return Err(CsiError::Denied { class: name() }),
        }
        check_words(asker)?;
        let tokens = self.tokens(pod, &driver).await?;
        Ok(Checked { driver, class, tokens, retries: self.config.rpc_retries })
    }

    async fn tokens(
        &self,
        pod: &Pod,
        driver: &DriverName,
    ) -> Result<Option<SecretBytes>, CsiError> {
        match self.csi_drivers.get(pod.uid(), driver.as_str()).await {
            Ok(Some(object)) => token::tokens(&*self.objects, pod, &object).await,
            Ok(None) | Err(WatchedError::NoSuchKind) => Ok(None),
            // A driver that needs tokens and gets none would say something less helpful.
            Err(error) => Err(CsiError::Token {
                account: service_account(pod).to_owned(),
                audience: String::new(),
                why: format!("CSIDriver {driver} is not known: {error}"),
            }),
        }
    }

    /// Asks the driver, and decides which failures a container can do without. Whether a variable may be
    /// optional at all was for the API server to say, which let the pod in (OP-33).
    async fn ask(
        &self,
        asker: Asker<'_>,
        group: &Group<'_>,
        checked: &Checked,
    ) -> Result<Given, CsiError> {
        let (hints, _) = Hints::read(&checked.class.class.spec.parameters);
        let refresh_interval = hints.refresh_interval;
        let is_optional = |variable: &CsiVariable<'_>| variable.selector.optional;
        let answers = match self.call(asker, group, checked).await {
            Ok(answers) => answers,
            Err(error) if error.is_excusable() && group.variables.iter().all(is_optional) => {
                let omitted = group.variables.iter();
                let omitted =
                    omitted.map(|variable| (variable.name.to_owned(), error.to_string())).collect();
                return Ok(Given { values: Vec::new(), omitted, refresh_interval });
            }
            Err(error) => return Err(error),
        };
        let mut given = Given { values: Vec::new(), omitted: Vec::new(), refresh_interval };
        for (variable, answer) in group.variables.iter().zip(answers) {
            let name = variable.name.to_owned();
            match answer {
                Answer::Value(value) => given.values.push((variable.position, value)),
                Answer::Refused(text) if is_optional(variable) => given.omitted.push((name, text)),
                Answer::Refused(text) => return Err(CsiError::Variable { name, text }),
            }
        }
        Ok(given)
    }
}

impl<'a> Group<'a> {
    /// As the pod names it; whether the class agrees is checked.
    fn driver(&self) -> &'a str {
        self.variables.first().map_or("", |variable| &variable.selector.driver)
    }

    fn injected(&self) -> Injected {
        Injected { driver: self.driver().to_owned(), class: self.class.to_owned() }
    }

    fn failure(&self, error: CsiError) -> ClassFailure {
        ClassFailure {
            driver: self.driver().to_owned(),
            class: self.class.to_owned(),
            names: self.variables.iter().map(|variable| variable.name.to_owned()).collect(),
            error,
        }
    }
}

/// The variables by their class, each group in the order of definition.
fn groups<'a>(variables: &[CsiVariable<'a>]) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    for variable in variables {
        let class = &*variable.selector.provider_class_name;
        match groups.iter_mut().find(|group| group.class == class) {
            Some(group) => group.variables.push(*variable),
            None => groups.push(Group { class, variables: vec![*variable] }),
        }
    }
    groups
}

/// A value in a command or an argument would be shown by `/proc`, unless the pod says that this is known.
fn check_words(asker: Asker<'_>) -> Result<(), CsiError> {
    let annotations = asker.pod.object().metadata.annotations.as_ref();
    let annotations = serde_json::json!(annotations);
    match csi_words(asker.container).first() {
        Some(word) if !allows_csi_words(&annotations) => Err(CsiError::Words {
            place: format!("{}[{}]", word.field, word.position),
            why: word.to_string(),
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
