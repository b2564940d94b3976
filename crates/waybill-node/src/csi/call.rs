//! One call to a driver: made, timed, and made again as the rules say.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use prost::Message;
use tokio::time::{Instant, sleep, timeout};
use waybill_api::provider_class::hints::Hints;
use waybill_core::id::DriverName;
use waybill_proto::csi::{EnvVarQuery, NodeGetEnvVarsRequest};

use super::{
    Asker, Checked, Csi, CsiVariable, Group,
    access::service_account,
    answer::{self, Answer},
    drivers::Connection,
    error::CsiError,
    in_flight::{Counted, Crowded},
    limits::{Limits, limits},
    token,
};
use crate::retry::Pauses;

/// Twice what any answer may hold, so that one that is too large can still be told from a bad one.
const MESSAGE_BYTES: usize = 4 << 20;

/// No pause between two tries is longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

impl Csi {
    /// Asks the driver for all variables of a group: at most one call more than there are retries.
    pub(super) async fn call(
        &self,
        asker: Asker<'_>,
        group: &Group<'_>,
        checked: &Checked,
    ) -> Result<Vec<Answer>, CsiError> {
        let mut pauses = Pauses::new(self.config.retry_backoff, LONGEST_PAUSE);
        let mut retries = checked.retries;
        let mut call = Call { csi: self, asker, group, checked, told_fallbacks: false };
        loop {
            match call.attempt().await {
                Err(error) if error.is_retriable() && retries > 0 => {
                    retries -= 1;
                    sleep(pauses.next()).await;
                }
                other => return other,
            }
        }
    }
}

struct Call<'a> {
    csi: &'a Csi,
    asker: Asker<'a>,
    group: &'a Group<'a>,
    checked: &'a Checked,
    /// Fallbacks are counted once, however often the call is made.
    told_fallbacks: bool,
}

impl Call<'_> {
    async fn attempt(&mut self) -> Result<Vec<Answer>, CsiError> {
        let driver = &self.checked.driver;
        let connection = self.csi.drivers.connection(driver, self.csi.config.rpc_timeout).await?;
        if !connection.about.injects {
            return Err(CsiError::NoCapability { driver: driver.to_string() });
        }
        let limits = self.limits(&connection);
        let request = self.request(&connection);
        let bytes = request.encoded_len();
        if bytes > limits.payload_bytes {
            let what = "the request to the CSI driver".to_owned();
            return Err(CsiError::Oversize { what, bytes, limit: limits.payload_bytes });
        }
        let queries = request.queries.clone();
        let metrics = self.csi.metrics.csi();
        let _counted = Counted::new(metrics.in_flight(driver.as_str()));
        let class = limits.in_flight_of_class.then_some(self.group.class);
        let in_flight = self.csi.drivers.in_flight(driver, class);
        let namespace = self.asker.pod.namespace();
        let slot = in_flight.enter(namespace, limits.in_flight, limits.rpc_timeout).await;
        let _slot = slot.map_err(|Crowded| CsiError::Throttled {
            driver: driver.to_string(),
            namespace: namespace.to_owned(),
            limit: limits.in_flight,
            waited: limits.rpc_timeout,
        })?;
        let begin = Instant::now();
        let sent = send(&connection, driver, request, &limits).await;
        metrics.duration(driver.as_str(), self.group.class, begin.elapsed());
        if let Err(CsiError::Transport { .. }) = &sent {
            self.csi.drivers.forget(driver, &connection);
        }
        answer::read(driver.as_str(), &queries, sent?, &limits)
    }

    fn limits(&mut self, connection: &Connection) -> Limits {
        let (class, faults) = Hints::read(&self.checked.class.class.spec.parameters);
        let default = self.csi.config.rpc_timeout;
        let (limits, fallbacks) = limits(&connection.about.hints, &class, &faults, default);
        if !std::mem::replace(&mut self.told_fallbacks, true) {
            let driver = self.checked.driver.as_str();
            for reason in fallbacks {
                self.csi.metrics.csi().fallback(driver, self.group.class, reason);
            }
        }
        limits
    }

    fn request(&self, connection: &Connection) -> NodeGetEnvVarsRequest {
        let parameters = &self.checked.class.class.spec.parameters;
        NodeGetEnvVarsRequest {
            provider_class_name: self.group.class.to_owned(),
            class_parameters: parameters.clone().into_iter().collect(),
            queries: self.group.variables.iter().map(query).collect(),
            pod_context: self.pod_context(),
            version: connection.about.vendor_version.clone(),
        }
    }

    /// CSI-04
    fn pod_context(&self) -> BTreeMap<String, String> {
        let pod = self.asker.pod;
        let facts = [
            ("namespace", pod.namespace()),
            ("serviceAccount", service_account(pod)),
            ("podName", pod.name()),
            ("podUID", pod.uid().as_str()),
            ("nodeName", &self.csi.node),
        ];
        let mut context: BTreeMap<_, _> =
            facts.into_iter().map(|(name, fact)| (name.to_owned(), fact.to_owned())).collect();
        if let Some(tokens) = &self.checked.tokens
            && let Ok(text) = std::str::from_utf8(tokens.expose())
        {
            context.insert(token::CONTEXT_KEY.to_owned(), text.to_owned());
        }
        context
    }
}

async fn send(
    connection: &Arc<Connection>,
    driver: &DriverName,
    request: NodeGetEnvVarsRequest,
    limits: &Limits,
) -> Result<Vec<waybill_proto::csi::EnvVarResult>, CsiError> {
    let limit = limits.rpc_timeout;
    let mut node = connection.node().max_decoding_message_size(MESSAGE_BYTES);
    match timeout(limit, node.node_get_env_vars(request)).await {
        Ok(Ok(response)) => Ok(response.into_inner().results),
        Ok(Err(status)) => Err(CsiError::of_status(driver.as_str(), &status, limit)),
        Err(_) => Err(CsiError::Timeout { limit }),
    }
}

fn query(variable: &CsiVariable<'_>) -> EnvVarQuery {
    let parameters = variable.selector.parameters.iter();
    EnvVarQuery {
        name: variable.name.to_owned(),
        key: variable.selector.key.clone(),
        query_parameters: parameters
            .map(|(name, value)| (name.clone(), value.expose().to_owned()))
            .collect(),
        optional: variable.selector.optional,
    }
}
