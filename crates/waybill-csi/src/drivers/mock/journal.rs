//! What a mock was asked, one line of JSON for each call, so that a test can look at what a kubelet sends.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use serde::Serialize;
use waybill_proto::csi::{EnvVarQuery, NodeGetEnvVarsRequest};

use crate::guard::token::{self, TOKENS};

/// A call. Of tokens only the audiences are told.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    class: &'a str,
    class_parameters: &'a BTreeMap<String, String>,
    queries: Vec<Query<'a>>,
    pod: BTreeMap<&'a str, &'a str>,
    audiences: Vec<String>,
    version: &'a str,
}

#[derive(Serialize)]
struct Query<'a> {
    name: &'a str,
    key: &'a str,
    parameters: &'a BTreeMap<String, String>,
    optional: bool,
}

impl<'a> From<&'a EnvVarQuery> for Query<'a> {
    fn from(query: &'a EnvVarQuery) -> Self {
        let EnvVarQuery { name, key, query_parameters: parameters, optional } = query;
        Self { name, key, parameters, optional: *optional }
    }
}

/// Adds a line, in one write.
pub(super) fn add(path: &Path, request: &NodeGetEnvVarsRequest) -> io::Result<()> {
    let context = request.pod_context.iter();
    let tokens = request.pod_context.get(TOKENS).cloned().and_then(token::parse);
    let line = Line {
        class: &request.provider_class_name,
        class_parameters: &request.class_parameters,
        queries: request.queries.iter().map(Query::from).collect(),
        pod: context
            .filter(|(key, _)| *key != TOKENS)
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect(),
        audiences: tokens.unwrap_or_default().into_keys().collect(),
        version: &request.version,
    };
    let mut text = serde_json::to_vec(&line)?;
    text.push(b'\n');
    let mut file = File::options().create(true).append(true).mode(0o600).open(path)?;
    file.write_all(&text)
}
