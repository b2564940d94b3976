//! Every verb of every resource and subresource is guarded and recorded.
//!
//! The cases come from the registry, so a new resource cannot be forgotten here.

use std::{collections::BTreeSet, fs};

use futures_util::{StreamExt, stream};
use serde_json::Value;

use super::TestServer;
use crate::registry::{RESOURCES, Resource};

/// What gives every authenticated user a few rights; without it there are none.
const BASIC_USER: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/system:basic-user";

/// One verb of one resource.
struct Case {
    resource: &'static Resource,
    subresource: &'static str,
    verb: &'static str,
}

impl Case {
    fn all() -> Vec<Self> {
        let mut cases = Vec::new();
        for resource in RESOURCES.iter().copied() {
            let own = resource.verbs.iter().map(|verb| ("", *verb));
            let parts = resource
                .subresources
                .iter()
                .flat_map(|part| part.verbs.iter().map(|verb| (part.name, *verb)));
            cases.extend(own.chain(parts).map(|(subresource, verb)| Self {
                resource,
                subresource,
                verb,
            }));
        }
        cases
    }

    fn method(&self) -> &'static str {
        match self.verb {
            "create" => "POST",
            "update" => "PUT",
            "patch" => "PATCH",
            "delete" | "deletecollection" => "DELETE",
            "get" | "list" | "watch" => "GET",
            verb => panic!("no method for {verb}"),
        }
    }

    /// The name in the path; empty where the verb is about all objects.
    fn name(&self) -> &'static str {
        let about_all = matches!(self.verb, "create" | "list" | "watch" | "deletecollection");
        if about_all && self.subresource.is_empty() { "" } else { "absent" }
    }

    fn namespace(&self) -> &'static str {
        if self.resource.is_namespaced() { "default" } else { "" }
    }

    fn path(&self) -> String {
        let Resource { group, version, plural, .. } = self.resource;
        let mut path = match *group {
            "" => format!("/api/{version}"),
            group => format!("/apis/{group}/{version}"),
        };
        if self.resource.is_namespaced() {
            path.push_str("/namespaces/default");
        }
        for part in [plural, self.name(), self.subresource] {
            if !part.is_empty() {
                path.push('/');
                path.push_str(part);
            }
        }
        // Nothing is to be changed, and no watch is to be waited for.
        path.push_str(if self.verb == "watch" {
            "?watch=1&timeoutSeconds=1"
        } else {
            "?dryRun=All"
        });
        path
    }

    fn refusal(&self, user: &str) -> String {
        let Resource { group, plural, .. } = self.resource;
        let subject = match *group {
            "" => (*plural).to_owned(),
            group => format!("{plural}.{group}"),
        };
        let named = match self.name() {
            "" => String::new(),
            name => format!(" {name:?}"),
        };
        let part = match self.subresource {
            "" => (*plural).to_owned(),
            subresource => format!("{plural}/{subresource}"),
        };
        let scope = match self.namespace() {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace {namespace:?}"),
        };
        let verb = self.verb;
        format!(
            "{subject}{named} is forbidden: User {user:?} cannot {verb} resource {part:?} in API \
             group {group:?} {scope}"
        )
    }

    /// What an event about it says.
    fn record(&self, user: &str, code: u16) -> Record {
        Record {
            user: user.to_owned(),
            verb: self.verb.to_owned(),
            group: self.resource.group.to_owned(),
            version: self.resource.version.to_owned(),
            resource: self.resource.plural.to_owned(),
            subresource: self.subresource.to_owned(),
            namespace: self.namespace().to_owned(),
            name: self.name().to_owned(),
            code: code.into(),
        }
    }
}

/// The facts of an audit event that say who did what with which result.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Record {
    user: String,
    verb: String,
    group: String,
    version: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
    code: u64,
}

impl Record {
    /// Of an event that ends a request.
    fn read(event: &Value) -> Option<Self> {
        let text = |pointer: &str| {
            event.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        (text("/stage") == "ResponseComplete").then(|| Self {
            user: text("/user/username"),
            verb: text("/verb"),
            group: text("/objectRef/apiGroup"),
            version: text("/objectRef/apiVersion"),
            resource: text("/objectRef/resource"),
            subresource: text("/objectRef/subresource"),
            namespace: text("/objectRef/namespace"),
            name: text("/objectRef/name"),
            code: event.pointer("/responseStatus/code").and_then(Value::as_u64).unwrap_or(0),
        })
    }
}

#[tokio::test]
async fn every_verb_is_guarded_and_recorded() {
    let server = TestServer::start().await;
    assert_eq!(server.send("admin", "DELETE", BASIC_USER, "").await.code, 200);
    // No more at once than one user may have.
    let checks = Case::all().into_iter().map(|case| check(&server, case));
    let mut checks = stream::iter(checks).buffer_unordered(32);
    let mut expected = BTreeSet::new();
    while let Some(records) = checks.next().await {
        expected.extend(records);
    }
    drop(checks);
    let dir = server.dir.path().join("audit/audit.log");
    let TestServer { server, dir: _kept, .. } = server;
    server.stop().await;
    let log = fs::read_to_string(dir).unwrap();
    let found: BTreeSet<Record> =
        log.lines().filter_map(|line| Record::read(&serde_json::from_str(line).unwrap())).collect();
    let missing: Vec<_> = expected.difference(&found).collect();
    assert!(missing.is_empty(), "not in the audit log: {missing:#?}");
}

/// Tries one case without and with the right to it; returns what the audit log must hold.
async fn check(server: &TestServer, case: Case) -> [Record; 2] {
    let (method, path) = (case.method(), case.path());
    let reply = server.send("alice", method, &path, "").await;
    let status = reply.json();
    assert_eq!(reply.code, 403, "{method} {path} as alice: {status}");
    assert_eq!(status["reason"], "Forbidden", "{method} {path}");
    assert_eq!(status["message"], case.refusal("alice"), "{method} {path}");

    let reply = server.send("admin", method, &path, "").await;
    let served = reply.code != 403 && reply.code != 405 && reply.code < 500;
    assert!(served, "{method} {path} as admin: {reply:?}");
    [case.record("alice", 403), case.record("admin", reply.code)]
}
