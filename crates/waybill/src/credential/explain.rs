//! What a plugin did, and what clients make of it, in words. No secret is in them: arguments, variables, tokens and
//! keys are counted or named, and never shown.

use jiff::Timestamp;
use waybill_credential::{Authenticator, Credential, InteractiveMode, PluginError};

use super::Row;

/// How the plugin is run.
pub(super) fn stanza(plugin: &Authenticator) -> Vec<Row> {
    let stanza = plugin.stanza();
    let program = match plugin.program() {
        Some(program) => program.display().to_string(),
        None if stanza.command().contains('/') => "not there".to_owned(),
        None => "not on PATH".to_owned(),
    };
    let mode = match stanza.interactive_mode() {
        InteractiveMode::Never => "never",
        InteractiveMode::IfAvailable => "if it is a terminal",
        InteractiveMode::Always => "always; the plugin is not run without a terminal",
    };
    let here = match plugin.lends_stdin() {
        Ok(true) => "here the plugin gets it".to_owned(),
        Ok(false) => "here the plugin gets none".to_owned(),
        Err(error) => format!("here the plugin is not run: {error}"),
    };
    let cluster = if stanza.provides_cluster_info() { "told" } else { "not told" };
    vec![
        ("Plugin", stanza.command().to_owned()),
        ("Program", program),
        ("Arguments", hidden(stanza.arguments())),
        ("Variables", hidden(stanza.variables())),
        ("API version", stanza.api_version().as_str().to_owned()),
        ("Standard input", format!("{mode}; {here}")),
        ("Cluster", cluster.to_owned()),
    ]
}

fn hidden(count: usize) -> String {
    if count == 0 { "none".to_owned() } else { format!("{count}, hidden") }
}

/// What the plugin gave.
pub(super) fn credential(credential: &Credential, now: Timestamp) -> Vec<Row> {
    let token = credential.authorization().is_some();
    let mut rows = vec![("Token", if token { "yes, hidden" } else { "no" }.to_owned())];
    match credential.certificate() {
        None => rows.push(("Certificate", "no".to_owned())),
        Some(certificate) => {
            let (from, until) = (certificate.not_before(), certificate.not_after());
            rows.extend([
                ("Certificate", certificate.subject().to_owned()),
                ("Intermediates", certificate.intermediates().to_string()),
                ("Valid from", from.to_string()),
                ("Valid until", until.to_string()),
            ]);
            if !(from..until).contains(&now) {
                let warning = "the certificate is not valid now; clients send it all the same";
                rows.push(("Warning", warning.to_owned()));
            }
        }
    }
    rows.push((
        "Expires",
        match credential.expires() {
            Some(expires) => expires.to_string(),
            None => "never, as far as the plugin says".to_owned(),
        },
    ));
    rows.extend(clients(credential, now));
    rows
}

/// What becomes of the credential in ours, in a cache between processes, and in stock kubectl.
fn clients(credential: &Credential, now: Timestamp) -> [Row; 3] {
    let (ours, cache) = match (credential.expires(), credential.due()) {
        (Some(expires), _) if expires < now => (
            "uses it once: it has expired already, so the plugin runs for every request".to_owned(),
            "keeps nothing that has expired",
        ),
        (Some(_), Some(due)) => (
            format!("keeps it in memory, and asks for the next from {due} on, while nobody waits"),
            "`waybill credential cache` before the plugin's command keeps it for all clients until then",
        ),
        _ => (
            "keeps it in memory until a server refuses it or the process ends".to_owned(),
            "`waybill credential cache` before the plugin's command keeps it for all clients",
        ),
    };
    let stock = "runs the plugin at every start, whatever it says about expiry, and waits for it without a limit; after \
                 a 401 it runs the plugin again and fails all the same";
    let stock = match credential.certificate() {
        Some(_) => format!("{stock}; a new certificate closes all its connections, watches too"),
        None => stock.to_owned(),
    };
    [("Waybill", ours), ("A cache", cache.to_owned()), ("Stock kubectl", stock)]
}

/// Why there is no credential, in more words than the error itself has.
pub(super) fn failure(error: &PluginError) -> Vec<Row> {
    let (advice, stock) = match error {
        PluginError::Interactive(_) => (
            "run the client on a terminal, or let the stanza say `interactiveMode: IfAvailable` if the plugin can do \
             without a person"
                .to_owned(),
            "says the same",
        ),
        PluginError::NotFound { .. } => (
            "install the plugin, or name it by its path; a path is relative to the kubeconfig's directory, and a \
             name is looked up on PATH"
                .to_owned(),
            "says the same",
        ),
        PluginError::Exit { .. } => (
            "the plugin says why on standard error, above; it has the same answer for you if you run it by hand"
                .to_owned(),
            "runs it again for each request, without a pause",
        ),
        PluginError::Start { .. } => (
            "the program must be a file that you may read and execute; the interpreter of a script must be there"
                .to_owned(),
            "says the same",
        ),
        PluginError::Timeout { .. } => (
            "see what the plugin waits for: a network that does not answer, or a person (`interactiveMode`)".to_owned(),
            "waits for ever",
        ),
        PluginError::Decode(_) => (
            "standard output must hold one ExecCredential and nothing else; what people shall read belongs to standard \
             error"
                .to_owned(),
            "fails too, and may quote the output",
        ),
        PluginError::Version { returned, .. } => (
            format!("write `apiVersion: {returned}` into the stanza, or get a plugin that speaks both"),
            "says the same",
        ),
        PluginError::Denied { .. } => (
            "the policy for plugins forbids it; see whoever wrote the policy".to_owned(),
            "has a policy of its own in its preferences",
        ),
        _ => (
            "the plugin is at fault: its answer needs status.token, or both clientCertificateData and clientKeyData"
                .to_owned(),
            "says the same",
        ),
    };
    vec![("What to do", advice), ("Stock kubectl", stock.to_owned())]
}
