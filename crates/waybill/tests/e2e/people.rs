//! People of a cluster, each with a kubectl of their own.

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use waybill_testkit::kubectl::{Kubectl, Ran};

use crate::BINARY;

/// Somebody with a token.
pub(crate) struct Person {
    /// As the audit log has it.
    pub(crate) name: String,
    pub(crate) token: String,
    pub(crate) kubectl: Kubectl,
}

impl Person {
    /// A service account in `default`, made by an administrator and bound to a role there.
    pub(crate) fn account(admin: &Kubectl, kubeconfig: &Path, name: &str, role: &str) -> Self {
        admin.line(&format!("create serviceaccount {name}")).succeeds();
        let bind = format!(
            "create rolebinding {name} --clusterrole={role} --serviceaccount=default:{name}"
        );
        admin.line(&bind).succeeds();
        let token = admin.line(&format!("create token {name}")).succeeds().stdout.trim().to_owned();
        let user = format!("system:serviceaccount:default:{name}");
        Self::with_token(kubeconfig, &user, &token)
    }

    /// Whoever the API server takes for `name` by the token.
    pub(crate) fn with_token(kubeconfig: &Path, name: &str, token: &str) -> Self {
        let text = fs::read_to_string(kubeconfig).expect("the API server wrote it");
        let mut config: Value = serde_json::from_str(&text).expect("it is JSON");
        config["users"] = json!([{"name": "waybill", "user": {"token": token}}]);
        let file = name.replace(':', "-");
        let dir = kubeconfig.parent().and_then(Path::parent).expect("it is in the state directory");
        let path: PathBuf = dir.join(format!("{file}.kubeconfig"));
        fs::write(&path, config.to_string()).expect("the directory is ours");
        let kubectl = Kubectl::find(&path, dir).expect("the stack has one, too");
        Self { name: name.to_owned(), token: token.to_owned(), kubectl }
    }

    /// Our own program, run by this person.
    pub(crate) fn waybill(&self, arguments: &[&str]) -> Ran {
        waybill(&self.kubectl, arguments)
    }
}

/// Our own program with the kubeconfig of a kubectl.
pub(crate) fn waybill(kubectl: &Kubectl, arguments: &[&str]) -> Ran {
    let mut command = kubectl.command(Path::new(BINARY));
    let mut child = command.args(arguments).spawn().expect("waybill starts");
    // Closed, and not only empty.
    let _ = child.stdin.take().expect("stdin is piped").flush();
    let shown = arguments.iter().map(|argument| argument.get(..80).unwrap_or(argument));
    Ran::of(format!("waybill {}", shown.collect::<Vec<_>>().join(" ")), child)
}

/// What `env` printed.
pub(crate) fn variables(ran: &Ran) -> BTreeMap<String, String> {
    let lines = ran.succeeds().stdout.lines().filter_map(|line| line.split_once('='));
    lines.map(|(name, value)| (name.to_owned(), value.trim_end().to_owned())).collect()
}
