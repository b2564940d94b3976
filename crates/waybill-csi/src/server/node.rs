//! The CSI service `Node`: capabilities, and what happens to one call for variables.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::FutureExt;
use tokio::time::Instant;
use tonic::{Code, Request, Response, Status};
use tracing::{debug, warn};
use waybill_core::secret::SecretBytes;
use waybill_proto::csi::{
    EnvVarInjection, NodeGetCapabilitiesRequest, NodeGetCapabilitiesResponse,
    NodeGetEnvVarsRequest, NodeGetEnvVarsResponse, NodeGetInfoRequest, NodeGetInfoResponse,
    NodePublishVolumeRequest, NodePublishVolumeResponse, NodeServiceCapability,
    NodeUnpublishVolumeRequest, NodeUnpublishVolumeResponse,
    node_server::Node,
    node_service_capability::{Rpc, Type, rpc},
};

use super::Config;
use crate::{
    answer,
    cache::{Cache, Shelf},
    driver::{Answer, Call, Driver, FetchError, Hints, Query},
    guard::{self, Refusal},
    identity::IdentityCheck,
    in_flight::InFlight,
    metrics::Metrics,
    rate::Limiter,
};

/// What a driver of variables says to those who ask for volumes.
const NO_VOLUMES: &str = "this driver has no volumes";

/// A driver behind its guards.
pub(crate) struct NodeService<D> {
    driver: Arc<D>,
    node_id: String,
    limiter: Option<Limiter>,
    in_flight: InFlight,
    cache: Arc<Cache>,
    metrics: Arc<Metrics>,
}

impl<D: Driver> NodeService<D> {
    pub(super) fn new(
        driver: Arc<D>,
        config: &Config,
        cache: Arc<Cache>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let (node_id, limiter) = (config.node_id.clone(), config.rate.map(Limiter::new));
        let in_flight = InFlight::default();
        Self { driver, node_id, limiter, in_flight, cache, metrics }
    }

    /// In the order in which a refusal costs least; nothing is read before all of them passed.
    async fn answer(&self, request: guard::Request) -> Result<NodeGetEnvVarsResponse, Status> {
        let guard::Request { call, asked, queries } = request;
        let namespace = &call.pod.namespace;
        if self.limiter.as_ref().is_some_and(|it| !it.admits(namespace, Instant::now())) {
            return Err(Refusal::Rate { namespace: namespace.clone() }.into());
        }
        let limit = self.driver.hints().max_in_flight;
        let Some(_running) = self.in_flight.enter(limit) else {
            return Err(Refusal::Busy { limit: limit.unwrap_or_default() }.into());
        };
        guard::check_lists(&call, &queries)?;
        let ttl = guard::cache_ttl(&call, self.driver.cache_ttl())?;
        if let Err(failure) = self.driver.identity().check(&call).await {
            return Err(answer::status(&[failure]));
        }
        let answers = match ttl {
            Duration::ZERO => self.ask(&call, &queries).await,
            ttl => self.find_or_ask(&call, &queries, ttl).await,
        };
        answer::reply(asked, &queries, answers)
    }

    /// Asks the driver only for what the cache does not have.
    async fn find_or_ask(&self, call: &Call, queries: &[Query], ttl: Duration) -> Vec<Answer> {
        let shelf = Shelf::of(call, self.driver.sharing());
        let found = self.cache.find(&shelf, queries, Instant::now());
        let missing = without_value(queries, &found);
        if missing.is_empty() {
            self.metrics.cached(queries.len(), self.cache.bytes());
            return merge(found, Vec::new());
        }
        let flight = self.cache.flight(&shelf, &missing);
        let _turn = flight.lock().await;
        // Whoever had the turn before may have asked for the same.
        let found = self.cache.find(&shelf, queries, Instant::now());
        let missing = without_value(queries, &found);
        let read = self.cache.reading(&call.pod.namespace);
        let answers = match missing.as_slice() {
            [] => Vec::new(),
            missing => self.ask(call, missing).await,
        };
        let ends = Instant::now() + ttl;
        for (query, answer) in missing.iter().zip(&answers) {
            if let Ok(value) = answer {
                self.cache.keep(&shelf, query, value, ends, read);
            }
        }
        self.metrics.cached(queries.len() - missing.len(), self.cache.bytes());
        merge(found, answers)
    }

    /// The driver's answers, one to each query whatever it does.
    async fn ask(&self, call: &Call, queries: &[Query]) -> Vec<Answer> {
        let start = Instant::now();
        // A driver that panics fails its call, and says so, instead of breaking the connection.
        let fetching = AssertUnwindSafe(self.driver.fetch(call, queries)).catch_unwind();
        let answers = fetching.await.unwrap_or_else(|_| {
            Err(FetchError::backend("the driver failed at this call; its log says where"))
        });
        self.metrics.asked(start.elapsed());
        let answers = answers.and_then(|answers| {
            if answers.len() == queries.len() {
                return Ok(answers);
            }
            let text =
                format!("the driver has {} answers to {} keys", answers.len(), queries.len());
            Err(FetchError::backend(text))
        });
        match answers {
            Ok(answers) => {
                let failures = answers.iter().filter_map(|answer| answer.as_ref().err());
                failures.for_each(|failure| self.metrics.failed(failure.kind));
                answers
            }
            Err(failure) => {
                self.metrics.failed(failure.kind);
                queries.iter().map(|_| Err(failure.clone())).collect()
            }
        }
    }
}

#[tonic::async_trait]
impl<D: Driver> Node for NodeService<D> {
    async fn node_get_capabilities(
        &self,
        _request: Request<NodeGetCapabilitiesRequest>,
    ) -> Result<Response<NodeGetCapabilitiesResponse>, Status> {
        let rpc = Type::Rpc(Rpc { r#type: rpc::Type::EnvVarInjection.into() });
        let hints = hints(self.driver.hints()).map(Type::EnvVarInjection);
        let capability = |kind| NodeServiceCapability { r#type: Some(kind) };
        let capabilities = [rpc].into_iter().chain(hints).map(capability).collect();
        Ok(Response::new(NodeGetCapabilitiesResponse { capabilities }))
    }

    async fn node_get_info(
        &self,
        _request: Request<NodeGetInfoRequest>,
    ) -> Result<Response<NodeGetInfoResponse>, Status> {
        let node_id = self.node_id.clone();
        Ok(Response::new(NodeGetInfoResponse { node_id, ..NodeGetInfoResponse::default() }))
    }

    async fn node_get_env_vars(
        &self,
        request: Request<NodeGetEnvVarsRequest>,
    ) -> Result<Response<NodeGetEnvVarsResponse>, Status> {
        let message = request.into_inner();
        let told = Told::of(&message);
        let answered = match guard::Request::parse(message).map_err(Refusal::from) {
            Ok(request) => self.answer(request).await,
            Err(refusal) => Err(refusal.into()),
        };
        told.log(answered.as_ref().err());
        self.metrics.answered(answered.as_ref().map_or_else(Status::code, |_| Code::Ok));
        answered.map(Response::new)
    }

    async fn node_publish_volume(
        &self,
        _request: Request<NodePublishVolumeRequest>,
    ) -> Result<Response<NodePublishVolumeResponse>, Status> {
        Err(Status::unimplemented(NO_VOLUMES))
    }

    async fn node_unpublish_volume(
        &self,
        _request: Request<NodeUnpublishVolumeRequest>,
    ) -> Result<Response<NodeUnpublishVolumeResponse>, Status> {
        Err(Status::unimplemented(NO_VOLUMES))
    }
}

/// Who asked for what, without keys and values.
struct Told {
    class: String,
    pod: String,
    variables: usize,
}

impl Told {
    fn of(message: &NodeGetEnvVarsRequest) -> Self {
        let part = |key: &str| message.pod_context.get(key).map_or("", String::as_str);
        Self {
            class: message.provider_class_name.clone(),
            pod: format!("{}/{}", part("namespace"), part("podName")),
            variables: message.queries.len(),
        }
    }

    /// What a greedy namespace is refused fills no log; it is counted.
    fn log(&self, failure: Option<&Status>) {
        let Self { class, pod, variables } = self;
        match failure {
            None => debug!(class, pod, variables, "answered"),
            Some(status) if status.code() == Code::ResourceExhausted => {
                debug!(class, pod, variables, "asked too often, or too much at once");
            }
            Some(status) => {
                let (code, reason) = (status.code(), status.message());
                warn!(class, pod, variables, ?code, reason, "not answered");
            }
        }
    }
}

/// As they travel; nothing if there are none.
fn hints(hints: Hints) -> Option<EnvVarInjection> {
    if hints == Hints::default() {
        return None;
    }
    let number = |number: Option<u32>| number.map_or(0, i64::from);
    Some(EnvVarInjection {
        max_payload_bytes: number(hints.max_payload_bytes),
        max_value_bytes: number(hints.max_value_bytes),
        rpc_timeout: hints.rpc_timeout.and_then(|timeout| timeout.try_into().ok()),
        max_in_flight: number(hints.max_in_flight),
    })
}

fn without_value(queries: &[Query], found: &[Option<SecretBytes>]) -> Vec<Query> {
    let missing = queries.iter().zip(found).filter(|(_, value)| value.is_none());
    missing.map(|(query, _)| query.clone()).collect()
}

/// Fills the gaps with what was asked for; there is an answer for each.
fn merge(found: Vec<Option<SecretBytes>>, answers: Vec<Answer>) -> Vec<Answer> {
    let mut answers = answers.into_iter();
    let gap = || Err(FetchError::backend("the driver did not answer"));
    found
        .into_iter()
        .map(|value| value.map_or_else(|| answers.next().unwrap_or_else(gap), Ok))
        .collect()
}
