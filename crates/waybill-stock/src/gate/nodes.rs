//! Records of nodes, from their agents.
//!
//! Each agent says in the ConfigMap of its node where it is and which certificate it shows. It is believed for its own node alone.

use futures_util::{StreamExt, stream};
use http::Method;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, api::ListParams};
use rustls_pki_types::CertificateDer;
use tokio::time::timeout;
use waybill_api::stock::{
    MissingRecords, NODE_CONFIG_MAP_PREFIX, NODE_RECORDS_KEY, NodeSession, NodeSessions,
    RecordsEndpoint, decode_base64url,
};

use super::{POD_LIMIT, Service, aggregated::SessionsQuery, ask::Question};
use crate::agent::SERVER_NAME;

/// How many agents are asked at once.
const AT_ONCE: usize = 16;

/// The most that is said of missing nodes.
const MISSING: usize = 100;

/// What nodes told.
#[derive(Default)]
pub(super) struct Collected {
    pub(super) records: Vec<NodeSession>,
    pub(super) missing: Vec<MissingRecords>,
    /// Whether older records were left out.
    pub(super) truncated: bool,
}

impl Service {
    /// Asks the agents of all nodes. Whoever does not answer in time is named.
    pub(super) async fn ask_nodes(&self, query: &SessionsQuery) -> Collected {
        let mut collected = Collected::default();
        let endpoints = match self.endpoints().await {
            Ok(endpoints) => endpoints,
            Err(why) => {
                collected.miss("all nodes".to_owned(), why);
                return collected;
            }
        };
        let asked = endpoints.into_iter().map(|(node, endpoint)| async move {
            let told = self.ask_node(&node, endpoint, query).await;
            (node, told)
        });
        let mut answers = stream::iter(asked).buffer_unordered(AT_ONCE);
        while let Some((node, told)) = answers.next().await {
            match told {
                Ok(told) => collected.take(&node, told, query.limit),
                Err(why) => collected.miss(format!("node {node}"), why),
            }
        }
        collected
    }

    async fn endpoints(&self) -> Result<Vec<(String, Option<RecordsEndpoint>)>, String> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let agents = ListParams::default().labels("app.kubernetes.io/name=waybill-agent");
        let listed = timeout(POD_LIMIT, api.list(&agents)).await;
        let listed = listed.map_err(|_| "the API server did not answer".to_owned())?;
        let listed =
            listed.map_err(|_| "the API server refused to say where they are".to_owned())?;
        let found = listed.items.into_iter().filter_map(|map| {
            let node = map.metadata.name?.strip_prefix(NODE_CONFIG_MAP_PREFIX)?.to_owned();
            let endpoint = map.data.and_then(|mut data| data.remove(NODE_RECORDS_KEY));
            Some((node, endpoint.and_then(|text| serde_json::from_str(&text).ok())))
        });
        Ok(found.collect())
    }

    async fn ask_node(
        &self,
        node: &str,
        endpoint: Option<RecordsEndpoint>,
        query: &SessionsQuery,
    ) -> Result<NodeSessions, String> {
        let RecordsEndpoint { address, certificate } =
            endpoint.ok_or("its agent does not serve records")?;
        let certificate = decode_base64url(&certificate).map_err(|error| error.to_string())?;
        let token = self.keys.signer()?.records_token(node, (self.clock)());
        let question = Question {
            address: &address,
            name: SERVER_NAME,
            roots: &[CertificateDer::from(certificate)],
            token: token.map_err(|error| error.to_string())?,
            method: Method::GET,
            path: query.of_nodes(),
            body: String::new(),
        };
        question.ask().await.map_err(|error| error.to_string())
    }
}

impl Collected {
    /// Keeps the newest of all nodes.
    fn take(&mut self, node: &str, told: NodeSessions, most: usize) {
        self.truncated |= told.truncated;
        // What an agent says about its name does not count.
        let named = told.sessions.into_iter().map(|it| NodeSession { node: node.to_owned(), ..it });
        self.records.extend(named);
        if self.records.len() > most {
            self.records.sort_by_key(|it| std::cmp::Reverse(it.record.started_ns));
            self.records.truncate(most);
            self.truncated = true;
        }
    }

    fn miss(&mut self, of: String, why: String) {
        if self.missing.len() < MISSING {
            self.missing.push(MissingRecords { of, why });
        }
    }
}
