//! What becomes of a request for a session: pure functions from the API server's question to the answer.
//!
//! An exec is signed into its own command; an attach cannot be, and is recorded. The container is chosen here as the API
//! server would choose it, and written into the request, so that what was signed is what happens.

use serde::Deserialize;
use serde_json::{Value, json};
use waybill_api::{
    status::{Status, Target},
    stock::{
        EXEC_PREFIX, Mode, SEALED_PREFIX, SEALED_SECONDS, SealedVariables, SessionId, StockClaims,
        StockKind, stamped,
    },
};

use super::{
    review::Review,
    signer::{self, Place},
};

/// The RuntimeClass whose containers the wrapper guards.
pub(super) const RUNTIME_CLASS: &str = "waybill";

/// The most bytes of a command; a kernel takes about two million with all variables, an API server about one in an address.
const COMMAND_BYTES: usize = 2 << 20;

/// The most words of one.
const COMMAND_WORDS: usize = 1 << 16;

/// Clocks of clients may be this much ahead, in seconds.
const SKEW: i64 = 60;

/// What a client asks for, as `PodExecOptions` and `PodAttachOptions` have it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Options {
    tty: bool,
    container: String,
    command: Vec<String>,
}

/// A session that may begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SessionPlan {
    pub(super) uid: String,
    pub(super) container: String,
    /// The node of the pod; empty if it is on none.
    pub(super) node: String,
    pub(super) tty: bool,
    /// The names of the client's variables.
    pub(super) variables: Vec<String>,
    /// What is signed and what follows the token; `None` where no wrapper would read it.
    pub(super) signed: Option<(StockClaims, Vec<String>)>,
}

impl SessionPlan {
    /// The change of the request, for the first word that the claims were signed into.
    pub(super) fn patch(&self, word: String, after: &[String]) -> Value {
        let command: Vec<_> = std::iter::once(word).chain(after.iter().cloned()).collect();
        json!([
            {"op": "add", "path": "/command", "value": command},
            {"op": "add", "path": "/container", "value": self.container},
        ])
    }
}

/// Judges an exec into `pod`.
pub(super) fn plan_exec(
    review: &Review,
    pod: &Value,
    mode: Mode,
    session: SessionId,
    now: i64,
) -> Result<SessionPlan, Box<Status>> {
    let options = options(review)?;
    check_size(&options.command)?;
    let container = container(pod, &options.container)?;
    let uid = node_uid(pod).to_owned();
    let (sealed, command) = take_sealed(&options.command)?;
    let Some(first) = command.first() else {
        return Err(refused("you must specify at least one command for the container"));
    };
    if first.starts_with(EXEC_PREFIX) || first.starts_with(SEALED_PREFIX) {
        return Err(forbidden(review, "the command begins with a word that only gate may write"));
    }
    let variables = match &sealed {
        Some((_, sealed)) => {
            check_sealed(sealed, &uid, &container, now).map_err(|why| forbidden(review, why))?
        }
        None => Vec::new(),
    };
    let node = node_name(pod).to_owned();
    let mut plan = SessionPlan { uid, container, node, tty: options.tty, variables, signed: None };
    if is_guarded(pod) {
        let words = stamped(sealed.as_ref().map(|(word, _)| *word), command);
        let place = place(review, &plan.uid, &plan.container);
        let claims = signer::claims(session, StockKind::Exec, place, plan.tty, &words, now);
        plan.signed = Some((claims, words));
        return Ok(plan);
    }
    match mode {
        _ if sealed.is_some() => Err(forbidden(review, NOT_GUARDED_SEALED)),
        Mode::Enforce => Err(forbidden(review, NOT_GUARDED)),
        Mode::Record => Ok(plan),
    }
}

pub(super) const NOT_GUARDED: &str = "the pod is not of the RuntimeClass \"waybill\", so nobody could tell whose this session is; \
    it is older than the label of its namespace, perhaps: make it anew";

const NOT_GUARDED_SEALED: &str = "the pod is not of the RuntimeClass \"waybill\", so nobody there can open variables of a session";

/// Judges an attach to `pod`.
pub(super) fn plan_attach(review: &Review, pod: &Value) -> Result<SessionPlan, Box<Status>> {
    let options = options(review)?;
    let container = container(pod, &options.container)?;
    let uid = node_uid(pod).to_owned();
    let (node, tty, variables) = (node_name(pod).to_owned(), options.tty, Vec::new());
    Ok(SessionPlan { uid, container, node, tty, variables, signed: None })
}

fn options(review: &Review) -> Result<Options, Box<Status>> {
    Options::deserialize(&review.object)
        .map_err(|_| refused("the options of the session are not understood"))
}

fn place<'a>(review: &'a Review, uid: &'a str, container: &'a str) -> Place<'a> {
    Place { namespace: &review.namespace, pod: &review.name, uid, container }
}

fn check_size(command: &[String]) -> Result<(), Box<Status>> {
    let bytes: usize = command.iter().map(String::len).sum();
    if bytes > COMMAND_BYTES || command.len() > COMMAND_WORDS {
        return Err(refused("the command is too long"));
    }
    Ok(())
}

/// The word with the client's sealed variables, what it says, and the command that follows it.
type Taken<'a> = (Option<(&'a str, SealedVariables)>, &'a [String]);

fn take_sealed(command: &[String]) -> Result<Taken<'_>, Box<Status>> {
    match command {
        [first, rest @ ..] if first.starts_with(SEALED_PREFIX) => {
            let sealed =
                SealedVariables::parse(first).map_err(|error| refused(error.to_string()))?;
            Ok((Some((first, sealed)), rest))
        }
        _ => Ok((None, command)),
    }
}

/// The names of sealed variables that are meant for this container, now.
fn check_sealed(
    sealed: &SealedVariables,
    uid: &str,
    container: &str,
    now: i64,
) -> Result<Vec<String>, &'static str> {
    if sealed.uid != uid || sealed.container != container {
        return Err("the variables of the session are sealed for another container");
    }
    let latest = now.saturating_add(SEALED_SECONDS + SKEW);
    if sealed.expires_at <= now || sealed.expires_at > latest {
        return Err(
            "the variables of the session were sealed too long ago, or the clock of the client is wrong",
        );
    }
    Ok(sealed.names.clone())
}

/// Whether the wrapper is below the pod's containers.
pub(super) fn is_guarded(pod: &Value) -> bool {
    pod.pointer("/spec/runtimeClassName").and_then(Value::as_str) == Some(RUNTIME_CLASS)
}

/// The uid by which its node knows a pod; that of a static pod is in its mirror.
pub(super) fn node_uid(pod: &Value) -> &str {
    let text = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str);
    text("/metadata/annotations/kubernetes.io~1config.mirror")
        .or_else(|| text("/metadata/uid"))
        .unwrap_or_default()
}

/// The node of a pod; empty if it is on none yet.
pub(super) fn node_name(pod: &Value) -> &str {
    pod.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or_default()
}

/// The container that the API server would choose: the one named, or the only one. Its words, too.
fn container(pod: &Value, wanted: &str) -> Result<String, Box<Status>> {
    let names = |list: &str| -> Vec<&str> {
        let containers = pod.pointer(list).and_then(Value::as_array).into_iter().flatten();
        containers.filter_map(|container| container.get("name")?.as_str()).collect()
    };
    let name = pod.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let regular = names("/spec/containers");
    let others = [names("/spec/initContainers"), names("/spec/ephemeralContainers")].concat();
    if !wanted.is_empty() {
        return if regular.contains(&wanted) || others.contains(&wanted) {
            Ok(wanted.to_owned())
        } else {
            Err(refused(format!("container {wanted} is not valid for pod {name}")))
        };
    }
    match regular.as_slice() {
        [only] => Ok((*only).to_owned()),
        [] => Err(refused(format!("a container name must be specified for pod {name}"))),
        several => Err(refused(format!(
            "a container name must be specified for pod {name}, choose one of: [{}]",
            several.join(" ")
        ))),
    }
}

fn refused(message: impl Into<String>) -> Box<Status> {
    Box::new(Status::bad_request(message))
}

pub(super) fn forbidden(review: &Review, why: &str) -> Box<Status> {
    let target = Target { group: "", resource: "pods", name: &review.name };
    Box::new(Status::forbidden(target, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 10_000;

    fn review(options: &Value) -> Review {
        Review {
            namespace: "ns".to_owned(),
            name: "web".to_owned(),
            object: options.clone(),
            ..Review::default()
        }
    }

    fn pod(class: &str, containers: &[&str]) -> Value {
        let containers: Vec<_> = containers.iter().map(|name| json!({"name": name})).collect();
        json!({"metadata": {"name": "web", "uid": "u-1"},
            "spec": {"runtimeClassName": class, "containers": containers,
                "ephemeralContainers": [{"name": "debug"}]}})
    }

    fn id() -> SessionId {
        SessionId::from_random([7; 16])
    }

    fn plan(options: &Value, pod: &Value, mode: Mode) -> Result<SessionPlan, String> {
        let plan = plan_exec(&review(options), pod, mode, id(), NOW);
        plan.map_err(|status| status.message().to_owned())
    }

    #[track_caller]
    fn check_refused(options: &Value, part: &str) {
        let told = plan(options, &pod("waybill", &["c"]), Mode::Enforce).unwrap_err();
        assert!(told.contains(part), "{told}");
    }

    fn sealed(change: impl FnOnce(&mut SealedVariables)) -> String {
        let mut sealed = SealedVariables {
            kid: "k".to_owned(),
            uid: "u-1".to_owned(),
            container: "c".to_owned(),
            names: vec!["A".to_owned(), "B".to_owned()],
            expires_at: NOW + SEALED_SECONDS,
            encapsulated: vec![1; 32],
            ciphertext: vec![2; 40],
        };
        change(&mut sealed);
        sealed.to_word()
    }

    #[test]
    fn an_exec_is_signed_for_its_pod_container_and_words() {
        let options = json!({"command": ["id", "-u"], "tty": true, "stdin": true});
        let plan = plan(&options, &pod("waybill", &["c"]), Mode::Enforce).unwrap();
        let (claims, words) = plan.signed.clone().unwrap();
        assert_eq!(words, ["-", "id", "-u"]);
        assert_eq!((&*claims.namespace, &*claims.pod, &*claims.uid), ("ns", "web", "u-1"));
        assert_eq!((&*claims.container, claims.tty, claims.kind), ("c", true, StockKind::Exec));
        let patch = plan.patch("w".to_owned(), &words);
        assert_eq!(
            patch,
            json!([{"op": "add", "path": "/command", "value": ["w", "-", "id", "-u"]},
                {"op": "add", "path": "/container", "value": "c"}])
        );
    }

    #[test]
    fn the_container_is_the_one_that_the_api_server_would_choose() {
        let chosen = |wanted: &str, names: &[&str]| {
            let options = json!({"command": ["id"], "container": wanted});
            plan(&options, &pod("waybill", names), Mode::Enforce).map(|plan| plan.container)
        };
        assert_eq!(chosen("", &["c"]).unwrap(), "c");
        assert_eq!(chosen("b", &["a", "b"]).unwrap(), "b");
        assert_eq!(chosen("debug", &["a", "b"]).unwrap(), "debug");
        assert_eq!(chosen("x", &["a"]).unwrap_err(), "container x is not valid for pod web");
        assert_eq!(
            chosen("", &["a", "b"]).unwrap_err(),
            "a container name must be specified for pod web, choose one of: [a b]"
        );
        let mut annotated = pod("waybill", &["a", "b"]);
        annotated["metadata"]["annotations"] =
            json!({"kubectl.kubernetes.io/default-container": "a"});
        let told = plan(&json!({"command": ["id"]}), &annotated, Mode::Enforce).unwrap_err();
        assert!(told.starts_with("a container name must be specified"), "{told}");
    }

    #[test]
    fn words_of_ours_are_refused_when_a_user_types_them() {
        let ours = "only gate may write";
        for first in [EXEC_PREFIX, "waybill-exec:eyJ.eyJ.x"] {
            check_refused(&json!({"command": [first, "-", "id"]}), ours);
            check_refused(&json!({"command": [sealed(|_| ()), first, "-", "id"]}), ours);
        }
        check_refused(&json!({"command": [sealed(|_| ()), sealed(|_| ()), "id"]}), ours);
        // Elsewhere they are arguments as any other.
        let options = json!({"command": ["echo", "waybill-exec:x"]});
        assert!(plan(&options, &pod("waybill", &["c"]), Mode::Enforce).is_ok());
    }

    #[test]
    fn commands_have_an_end_and_a_beginning() {
        check_refused(&json!({"command": []}), "at least one command");
        check_refused(&json!({"command": [sealed(|_| ())]}), "at least one command");
        check_refused(&json!({"command": ["x".repeat(COMMAND_BYTES + 1)]}), "too long");
        check_refused(&json!({"command": vec![""; COMMAND_WORDS + 1]}), "too long");
        check_refused(&json!({"command": "id"}), "not understood");
    }

    #[test]
    fn sealed_variables_move_behind_the_token_and_their_names_are_known() {
        let word = sealed(|_| ());
        let options = json!({"command": [word, "id"]});
        let plan = plan(&options, &pod("waybill", &["c"]), Mode::Enforce).unwrap();
        assert_eq!(plan.variables, ["A", "B"]);
        assert_eq!(plan.signed.unwrap().1, [word.as_str(), "id"]);
    }

    #[test]
    fn variables_that_are_sealed_for_others_or_too_old_are_refused() {
        let check = |change: &dyn Fn(&mut SealedVariables), part: &str| {
            check_refused(&json!({"command": [sealed(change), "id"]}), part);
        };
        check(&|sealed| sealed.uid = "u-2".to_owned(), "for another container");
        check(&|sealed| sealed.container = "d".to_owned(), "for another container");
        check(&|sealed| sealed.expires_at = NOW, "too long ago");
        check(&|sealed| sealed.expires_at = i64::MAX, "clock of the client");
        check(&|sealed| sealed.names = vec!["WAYBILL_SESSION_ID".to_owned()], "reserved");
        check(&|sealed| sealed.names = vec!["A=B".to_owned()], "not allowed");
        check_refused(&json!({"command": ["waybill-sealed:hunter2", "id"]}), "not understood");
    }

    #[test]
    fn where_no_wrapper_is_an_exec_is_refused_or_recorded() {
        let options = json!({"command": ["id"]});
        for class in ["", "kata"] {
            let told = plan(&options, &pod(class, &["c"]), Mode::Enforce).unwrap_err();
            assert!(told.contains("make it anew"), "{told}");
            assert_eq!(plan(&options, &pod(class, &["c"]), Mode::Record).unwrap().signed, None);
            let sealed = json!({"command": [sealed(|_| ()), "id"]});
            let told = plan(&sealed, &pod(class, &["c"]), Mode::Record).unwrap_err();
            assert!(told.contains("open variables"), "{told}");
        }
    }

    #[test]
    fn an_attach_is_planned_without_a_signature() {
        let plan =
            plan_attach(&review(&json!({"stdin": true, "tty": true})), &pod("waybill", &["c"]));
        let plan = plan.unwrap();
        assert_eq!((&*plan.container, plan.tty, plan.signed), ("c", true, None));
    }

    #[test]
    fn a_static_pod_is_known_by_the_uid_of_its_file() {
        let mut pod = pod("waybill", &["c"]);
        pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "hash"});
        assert_eq!(node_uid(&pod), "hash");
    }
}
