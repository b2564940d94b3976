//! A call as it comes over the wire, and what has to be in it (CSI-02 to CSI-04).

use std::{collections::BTreeMap, mem::take};

use prost::Message;
use waybill_core::provider::KEY_BYTES;
use waybill_proto::csi::{EnvVarQuery, NodeGetEnvVarsRequest};

use super::token::{self, TOKENS};
use crate::{
    answer::Asked,
    driver::{Call, PodIdentity, Query},
};

/// Largest request; a thousand variables with long keys are less.
pub(crate) const REQUEST_BYTES: usize = 1 << 20;

/// Most variables of one call.
pub(crate) const QUERIES: usize = 1000;

/// A call that is whole. `asked` and `queries` belong together, one by one.
pub(crate) struct Request {
    pub(crate) call: Call,
    pub(crate) asked: Vec<Asked>,
    pub(crate) queries: Vec<Query>,
}

/// What is wrong with a call; the text names the field as the proposal does.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RequestError {
    #[error("the request has {bytes} bytes, more than {REQUEST_BYTES}")]
    TooLarge { bytes: usize },
    #[error("{field} is required")]
    Missing { field: &'static str },
    #[error(
        "class_parameters is required: give ProviderClass {class:?} a parameter, such as \
         allowedNamespaces"
    )]
    NoParameters { class: String },
    #[error("pod_context lacks {key}")]
    Context { key: &'static str },
    #[error("pod_context[{TOKENS:?}] is not JSON of tokens by audience")]
    Tokens,
    #[error("there are {count} queries, more than {QUERIES}")]
    TooMany { count: usize },
    #[error("queries[{at}].{field} is required")]
    Query { at: usize, field: &'static str },
    #[error("queries[{at}].key is longer than {KEY_BYTES} bytes")]
    LongKey { at: usize },
}

impl Request {
    /// Takes a request apart; the first thing that is wrong is told.
    pub(crate) fn parse(mut message: NodeGetEnvVarsRequest) -> Result<Self, RequestError> {
        let bytes = message.encoded_len();
        if bytes > REQUEST_BYTES {
            return Err(RequestError::TooLarge { bytes });
        }
        let class = take(&mut message.provider_class_name);
        if class.is_empty() {
            return Err(RequestError::Missing { field: "provider_class_name" });
        }
        if message.class_parameters.is_empty() {
            return Err(RequestError::NoParameters { class });
        }
        if message.queries.is_empty() {
            return Err(RequestError::Missing { field: "queries" });
        }
        if message.queries.len() > QUERIES {
            return Err(RequestError::TooMany { count: message.queries.len() });
        }
        if message.pod_context.is_empty() {
            return Err(RequestError::Missing { field: "pod_context" });
        }
        let mut context = take(&mut message.pod_context);
        let tokens = match context.remove(TOKENS) {
            Some(text) => token::parse(text).ok_or(RequestError::Tokens)?,
            None => BTreeMap::new(),
        };
        let pod = pod(context)?;
        let parameters = take(&mut message.class_parameters);
        let call = Call { class, parameters, pod, tokens };
        let (mut asked, mut queries) = (Vec::new(), Vec::new());
        for (at, query) in take(&mut message.queries).into_iter().enumerate() {
            let EnvVarQuery { name, key, query_parameters, optional } = query;
            for (field, text) in [("name", &name), ("key", &key)] {
                if text.is_empty() {
                    return Err(RequestError::Query { at, field });
                }
            }
            if key.len() > KEY_BYTES {
                return Err(RequestError::LongKey { at });
            }
            asked.push(Asked { name, optional });
            queries.push(Query { key, parameters: query_parameters });
        }
        Ok(Self { call, asked, queries })
    }
}

/// The proposal's own example has no `nodeName`.
fn pod(mut context: BTreeMap<String, String>) -> Result<PodIdentity, RequestError> {
    let mut take = |key: &'static str| {
        let text = context.remove(key).filter(|text| !text.is_empty());
        text.ok_or(RequestError::Context { key })
    };
    Ok(PodIdentity {
        namespace: take("namespace")?,
        service_account: take("serviceAccount")?,
        name: take("podName")?,
        uid: take("podUID")?,
        node: take("nodeName").unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> String {
        text.to_owned()
    }

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| (text(key), text(value))).collect()
    }

    fn whole() -> NodeGetEnvVarsRequest {
        NodeGetEnvVarsRequest {
            provider_class_name: text("class"),
            class_parameters: map(&[("a", "b")]),
            queries: vec![EnvVarQuery {
                name: text("N"),
                key: text("k"),
                query_parameters: map(&[("field", "f")]),
                optional: true,
            }],
            pod_context: map(&[
                ("namespace", "shop"),
                ("serviceAccount", "till"),
                ("podName", "till-1"),
                ("podUID", "u"),
                ("nodeName", "n"),
            ]),
            version: text("1"),
        }
    }

    #[track_caller]
    fn check(change: impl FnOnce(&mut NodeGetEnvVarsRequest), expected: &str) {
        let mut message = whole();
        change(&mut message);
        let error = Request::parse(message).err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), Some(expected));
    }

    /// CSI-03, CSI-04
    #[test]
    fn a_whole_request_is_taken_apart_csi_03_csi_04() {
        let Request { call, asked, queries } = Request::parse(whole()).ok().unwrap();
        assert_eq!(call.class, "class");
        assert_eq!(call.parameter("a"), Some("b"));
        assert_eq!(asked, [Asked { name: text("N"), optional: true }]);
        assert_eq!(queries, [Query { key: text("k"), parameters: map(&[("field", "f")]) }]);
        let PodIdentity { namespace, service_account, name, uid, node } = call.pod;
        assert_eq!(
            [namespace, service_account, name, uid, node],
            ["shop", "till", "till-1", "u", "n"]
        );
    }

    /// CSI-02
    #[test]
    fn what_is_missing_is_named_csi_02() {
        check(|it| it.provider_class_name.clear(), "provider_class_name is required");
        check(
            |it| it.class_parameters.clear(),
            "class_parameters is required: give ProviderClass \"class\" a parameter, such as \
             allowedNamespaces",
        );
        check(|it| it.queries.clear(), "queries is required");
        check(|it| it.pod_context.clear(), "pod_context is required");
        check(|it| it.queries[0].name.clear(), "queries[0].name is required");
        check(|it| it.queries[0].key.clear(), "queries[0].key is required");
    }

    /// CSI-04
    #[test]
    fn every_part_of_the_context_but_the_node_is_required_csi_04() {
        for key in ["namespace", "serviceAccount", "podName", "podUID"] {
            let expected = format!("pod_context lacks {key}");
            check(|it| drop(it.pod_context.remove(key)), &expected);
            check(|it| drop(it.pod_context.insert(text(key), String::new())), &expected);
        }
        let mut message = whole();
        message.pod_context.remove("nodeName");
        assert!(Request::parse(message).is_ok());
    }

    /// CSI-44
    #[test]
    fn too_much_is_refused_csi_44() {
        let query = whole().queries.remove(0);
        check(
            |it| it.queries = vec![query.clone(); 1001],
            "there are 1001 queries, more than 1000",
        );
        let mut message = whole();
        message.queries = vec![query; 1000];
        assert!(Request::parse(message).is_ok());
        check(
            |it| it.queries[0].key = "k".repeat(4097),
            "queries[0].key is longer than 4096 bytes",
        );
        let mut message = whole();
        message.version = "v".repeat(REQUEST_BYTES);
        let error = Request::parse(message).err().unwrap();
        assert!(matches!(error, RequestError::TooLarge { bytes } if bytes > REQUEST_BYTES));
    }

    #[test]
    fn tokens_are_taken_out_of_the_context_op_41() {
        let mut message = whole();
        let tokens = r#"{"vault":{"token":"t","expirationTimestamp":"2030-01-01T00:00:00Z"}}"#;
        message.pod_context.insert(text(TOKENS), text(tokens));
        let call = Request::parse(message).ok().unwrap().call;
        let token = &call.tokens["vault"];
        assert!(token.token.constant_time_eq(b"t"));
        assert_eq!(token.expires, "2030-01-01T00:00:00Z");
        assert!(!format!("{call:?}").contains("2030"));
        let wrong = text(r#"{"vault":"secret"}"#);
        check(
            |it| drop(it.pod_context.insert(text(TOKENS), wrong)),
            "pod_context[\"csi.storage.k8s.io/serviceAccount.tokens\"] is not JSON of tokens by \
             audience",
        );
    }
}
