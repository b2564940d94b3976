//! Our group of the aggregated API, `exec.waybill.dev/v1`: what its discovery says, the keys of all replicas, the key of a
//! pod's node, and the records of this replica.
//!
//! The API server has authenticated the user and passes the name on; what the user may do is asked again here, since the API server
//! knows nothing of a right to exec behind a key.

use http::StatusCode;
use k8s_openapi::api::{authorization::v1::ResourceAttributes, core::v1::ConfigMap};
use kube::Api;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;
use waybill_api::{
    names::subdomain_faults,
    status::{Status, Target},
    stock::{
        GateRecord, MissingRecords, NODE_CONFIG_MAP_KEY, NODE_CONFIG_MAP_PREFIX, STOCK_GROUP,
        STOCK_VERSION, SealingKey, SessionList,
    },
};
use waybill_core::chain::Chain;

use super::{
    Answer, POD_LIMIT, Service, answer, callers::Asker, records::UserInfo, session::node_uid,
};

/// What is asked for in our group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asked<'a> {
    Group,
    Resources,
    Keys,
    /// Of one namespace, or of all.
    Sessions {
        namespace: Option<&'a str>,
    },
    SealingKey {
        namespace: &'a str,
        pod: &'a str,
    },
}

impl<'a> Asked<'a> {
    /// What a path means; `None` if it is none of ours.
    pub(super) fn at(path: &'a str) -> Option<Self> {
        let parts: Vec<_> = path.strip_prefix("/apis/")?.split('/').collect();
        match parts.as_slice() {
            [group] if *group == STOCK_GROUP => Some(Self::Group),
            [group, version, rest @ ..] if (*group, *version) == (STOCK_GROUP, STOCK_VERSION) => {
                match rest {
                    [] => Some(Self::Resources),
                    ["keys"] => Some(Self::Keys),
                    ["sessions"] => Some(Self::Sessions { namespace: None }),
                    ["namespaces", namespace, "sessions"] => {
                        Some(Self::Sessions { namespace: Some(namespace) })
                    }
                    ["namespaces", namespace, "pods", pod, "sealingkey"] => {
                        Some(Self::SealingKey { namespace, pod })
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

impl Service {
    /// Answers whoever an API server has authenticated. Discovery and public keys are for everybody.
    pub(super) async fn answer_aggregated(
        &self,
        asked: Asked<'_>,
        query: &str,
        asker: Option<Asker>,
    ) -> Answer {
        let given = match (asked, asker) {
            (Asked::Group, _) => Ok(group()),
            (Asked::Resources, _) => Ok(resources()),
            (Asked::Keys, _) => self.all_keys().await,
            (Asked::Sessions { namespace }, Some(Asker::User(user))) => {
                self.sessions(&user, SessionsQuery::parse(namespace, query)).await
            }
            (Asked::SealingKey { namespace, pod }, Some(Asker::User(user))) => {
                self.sealing_key(&user, namespace, pod).await
            }
            (Asked::Sessions { .. } | Asked::SealingKey { .. }, _) => {
                self.metrics.refuse_stranger();
                Err(Box::new(Status::unauthorized()))
            }
        };
        match given {
            Ok(document) => answer(StatusCode::OK, "application/json", document.to_string()),
            Err(status) => {
                let code = StatusCode::from_u16(status.code()).unwrap_or(StatusCode::BAD_GATEWAY);
                let text = serde_json::to_string(&*status).unwrap_or_default();
                answer(code, "application/json", text)
            }
        }
    }

    async fn all_keys(&self) -> Result<Value, Box<Status>> {
        let keys = self.keys.all().await.map_err(|error| unavailable(&error))?;
        Ok(json!({"kind": "Keys", "apiVersion": API_VERSION, "keys": keys.keys}))
    }

    /// What gates and nodes have on record, for whoever may list it.
    async fn sessions(&self, user: &UserInfo, query: SessionsQuery) -> Result<Value, Box<Status>> {
        let right = ResourceAttributes {
            verb: some("list"),
            group: some(STOCK_GROUP),
            version: some(STOCK_VERSION),
            resource: some("sessions"),
            namespace: query.namespace.clone(),
            ..ResourceAttributes::default()
        };
        let target = Target { group: STOCK_GROUP, resource: "sessions", name: "" };
        let what = match &query.namespace {
            Some(namespace) => format!("list sessions in the namespace {namespace:?}"),
            None => "list sessions in all namespaces".to_owned(),
        };
        self.check(user, right, target, &what).await?;
        let (mut missing, nodes) = tokio::join!(self.ask_siblings(), self.ask_nodes(&query));
        missing.extend(nodes.missing);
        let mut items: Vec<_> =
            self.records.newest().into_iter().filter(|record| query.takes(record)).collect();
        let surplus = items.len().saturating_sub(query.limit);
        items.drain(..surplus);
        if surplus > 0 || nodes.truncated {
            missing.push(MissingRecords {
                of: "older sessions".to_owned(),
                why: "only the newest are told at once".to_owned(),
            });
        }
        let list = SessionList { items, node_records: nodes.records, missing };
        serde_json::to_value(list)
            .map(as_list)
            .map_err(|_| Box::new(Status::internal("the records cannot be written")))
    }

    /// The key that opens a session's variables at the node of a pod, for whoever may exec there.
    async fn sealing_key(
        &self,
        user: &UserInfo,
        namespace: &str,
        pod: &str,
    ) -> Result<Value, Box<Status>> {
        let right = ResourceAttributes {
            verb: some("create"),
            version: some("v1"),
            resource: some("pods"),
            subresource: some("exec"),
            namespace: some(namespace),
            name: some(pod),
            ..ResourceAttributes::default()
        };
        let target = Target { group: "", resource: "pods", name: pod };
        self.check(user, right, target, "create pods/exec").await?;
        let found = self.pod(namespace, pod).await.map_err(|error| unavailable(&error))?;
        let found = found.ok_or_else(|| Box::new(Status::not_found(target)))?;
        let node = found.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or_default();
        if node.is_empty() {
            return Err(Box::new(Status::conflict_message(format!(
                "pod {pod} does not have a host assigned"
            ))));
        }
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let name = format!("{NODE_CONFIG_MAP_PREFIX}{node}");
        let read = timeout(POD_LIMIT, api.get_opt(&name)).await;
        let read =
            read.map_err(|_| Box::new(Status::unavailable("the API server did not answer")))?;
        let map = read.map_err(|error| unavailable(&error))?;
        let sealing = map.and_then(|map| map.data?.remove(NODE_CONFIG_MAP_KEY));
        let sealing: Option<NodeKey> = sealing.and_then(|text| serde_json::from_str(&text).ok());
        let Some(sealing) = sealing else {
            let why =
                format!("node {node} has published no key, so variables cannot be sealed for it");
            return Err(Box::new(Status::not_found_message(why)));
        };
        let key = SealingKey {
            kind: "SealingKey".to_owned(),
            api_version: API_VERSION.to_owned(),
            node: node.to_owned(),
            kid: sealing.kid,
            key: sealing.key,
            pod_uid: node_uid(&found).to_owned(),
        };
        serde_json::to_value(key)
            .map_err(|_| Box::new(Status::internal("the key cannot be written")))
    }

    async fn check(
        &self,
        user: &UserInfo,
        right: ResourceAttributes,
        target: Target<'_>,
        what: &str,
    ) -> Result<(), Box<Status>> {
        if self.rights.may(user, right).await.map_err(|error| unavailable(&error))? {
            return Ok(());
        }
        Err(Box::new(Status::forbidden(target, format!("User {:?} cannot {what}", user.username))))
    }
}

/// Which sessions are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SessionsQuery {
    namespace: Option<String>,
    pod: Option<String>,
    /// Not what was over before, in seconds since 1970.
    since: Option<i64>,
    /// The newest so many of gates, and of nodes.
    pub(super) limit: usize,
}

impl SessionsQuery {
    /// Reads a query. Names and numbers need no escapes, so what has one names nothing; what is not known is passed over, since
    /// clients of Kubernetes add words of their own.
    fn parse(namespace: Option<&str>, query: &str) -> Self {
        let namespace = namespace.map(str::to_owned);
        let mut parsed = Self { namespace, pod: None, since: None, limit: MOST_SESSIONS };
        for (name, value) in query.split('&').filter_map(|part| part.split_once('=')) {
            match name {
                "pod" => parsed.pod = Some(value.to_owned()),
                "since" => parsed.since = value.parse().ok(),
                "limit" => {
                    let limit = value.parse().unwrap_or(MOST_SESSIONS);
                    parsed.limit = limit.clamp(1, MOST_SESSIONS);
                }
                _ => {}
            }
        }
        // It becomes part of an address.
        parsed.pod = parsed.pod.filter(|pod| subdomain_faults(pod).is_empty());
        parsed
    }

    /// Whether a record of a gate is wanted. Nobody here knows when a session ended, and whoever asks does.
    fn takes(&self, record: &GateRecord) -> bool {
        let is =
            |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|it| it == found);
        is(&self.namespace, &record.namespace) && is(&self.pod, &record.pod)
    }

    /// The same question to an agent.
    pub(super) fn of_nodes(&self) -> String {
        let mut path = format!("/sessions?limit={}", self.limit);
        for (name, value) in [("namespace", &self.namespace), ("pod", &self.pod)] {
            if let Some(value) = value {
                path.push_str(&format!("&{name}={value}"));
            }
        }
        if let Some(since) = self.since {
            let nanoseconds = since.max(0).unsigned_abs().saturating_mul(1_000_000_000);
            path.push_str(&format!("&sinceNs={nanoseconds}"));
        }
        path
    }
}

/// How many sessions are told at once.
const MOST_SESSIONS: usize = 5_000;

/// As clients of Kubernetes expect a list: each item has a name.
fn as_list(mut list: Value) -> Value {
    let items = list.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten();
    for (at, item) in items.enumerate() {
        let (session, time) = (item.get("session").and_then(Value::as_str), item.get("time"));
        let name = session.map_or_else(|| format!("refused-{}-{at}", json!(time)), str::to_owned);
        let metadata = json!({"name": name, "namespace": item.get("namespace")});
        if let Some(item) = item.as_object_mut() {
            item.insert("metadata".to_owned(), metadata);
        }
    }
    if let Some(list) = list.as_object_mut() {
        list.insert("kind".to_owned(), "SessionList".into());
        list.insert("apiVersion".to_owned(), API_VERSION.into());
        list.insert("metadata".to_owned(), json!({}));
    }
    list
}

const API_VERSION: &str = "exec.waybill.dev/v1";

/// What the agent of a node publishes.
#[derive(Deserialize)]
struct NodeKey {
    kid: String,
    key: String,
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn unavailable(error: &(dyn std::error::Error + 'static)) -> Box<Status> {
    tracing::warn!(error = %Chain(error), "a request to our API group was not answered");
    Box::new(Status::unavailable("the API server could not be asked"))
}

fn group() -> Value {
    let version = json!({"groupVersion": API_VERSION, "version": STOCK_VERSION});
    json!({"kind": "APIGroup", "apiVersion": "v1", "name": STOCK_GROUP, "versions": [version],
        "preferredVersion": version})
}

fn resources() -> Value {
    let resource = |name: &str, namespaced: bool, kind: &str, verb: &str| json!({"name": name, "singularName": "", "namespaced": namespaced, "kind": kind, "verbs": [verb]});
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": API_VERSION, "resources": [
        resource("hooks", false, "AdmissionReview", "create"),
        resource("keys", false, "Keys", "list"),
        // Without it the API server makes one up whose verbs are null, and clients of kube-rs stumble over that.
        json!({"name": "pods", "singularName": "", "namespaced": true, "kind": "SealingKey", "verbs": []}),
        resource("pods/sealingkey", true, "SealingKey", "get"),
        resource("sessions", true, "Session", "list"),
    ]})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check<'a>(path: &'a str, expected: impl Into<Option<Asked<'a>>>) {
        assert_eq!(Asked::at(path), expected.into(), "{path}");
    }

    #[test]
    fn paths_are_those_of_an_aggregated_api() {
        check("/apis/exec.waybill.dev", Some(Asked::Group));
        check("/apis/exec.waybill.dev/v1", Some(Asked::Resources));
        check("/apis/exec.waybill.dev/v1/keys", Some(Asked::Keys));
        check("/apis/exec.waybill.dev/v1/sessions", Some(Asked::Sessions { namespace: None }));
        check(
            "/apis/exec.waybill.dev/v1/namespaces/ns/sessions",
            Some(Asked::Sessions { namespace: Some("ns") }),
        );
        check(
            "/apis/exec.waybill.dev/v1/namespaces/ns/pods/web/sealingkey",
            Some(Asked::SealingKey { namespace: "ns", pod: "web" }),
        );
        for other in [
            "/",
            "/apis",
            "/apis/x",
            "/apis/exec.waybill.dev/v2",
            "/apis/exec.waybill.dev/v1/pods",
            "/apis/exec.waybill.dev/v1/keys/",
            "/apis/exec.waybill.dev/v1/namespaces/ns/pods/web",
        ] {
            check(other, None);
        }
    }

    #[test]
    fn a_query_is_passed_on_to_nodes_without_what_could_be_another() {
        let query = SessionsQuery::parse(Some("shop"), "limit=500&pod=web&since=7&watch=true");
        assert_eq!(
            query.of_nodes(),
            "/sessions?limit=500&namespace=shop&pod=web&sinceNs=7000000000"
        );
        let query = SessionsQuery::parse(None, "pod=web%26namespace&limit=-1&since=x");
        assert_eq!(query.of_nodes(), "/sessions?limit=5000");
        assert_eq!(SessionsQuery::parse(None, "limit=999999").limit, MOST_SESSIONS);
        let since = SessionsQuery::parse(None, "since=9223372036854775807").of_nodes();
        assert!(since.ends_with(&u64::MAX.to_string()), "{since}");
    }

    /// Controllers delete and collect what has these verbs, all over a cluster.
    #[test]
    fn no_resource_can_be_deleted_or_watched() {
        let text = resources().to_string();
        assert!(!text.contains("delete") && !text.contains("watch"), "{text}");
    }
}
