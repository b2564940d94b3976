//! `waybill credential cache` under stock kubectl, which runs its plugin at every start whatever the expiry says.

use std::{
    fs,
    io::{Read, Write},
    process::Stdio,
    thread,
    time::Instant,
};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::json;
use waybill_testkit::{
    credential_cache::CachedPlugin,
    kubectl::{PATIENCE, Ran},
    program::KUBECTL,
};

use crate::cluster::Cluster;

struct Cached<'a> {
    cluster: &'a Cluster,
    plugin: CachedPlugin,
    flag: String,
}

impl<'a> Cached<'a> {
    /// A user whose plugin does `script` and then gives alice's token.
    fn new(cluster: &'a Cluster, script: &str, flags: &[&str]) -> Self {
        let plugin = CachedPlugin::new(env!("CARGO_BIN_EXE_waybill"), script);
        plugin.answer_with("alice-token", None);
        let mut kubeconfig = cluster.kubectl("config view --raw -o json").json();
        kubeconfig["users"][0]["user"] = json!({ "exec": plugin.stanza(flags) });
        fs::write(plugin.path("kubeconfig"), kubeconfig.to_string()).unwrap();
        let flag = format!("--kubeconfig={}", plugin.path("kubeconfig").display());
        Self { cluster, plugin, flag }
    }

    fn get(&self) -> Ran {
        self.cluster.kubectl(&format!("{} get --raw=/api", self.flag))
    }

    fn waybill(&self, arguments: &[&str]) -> String {
        let output = self.plugin.waybill(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

/// CRED-28: the rule for one process holds for all of a user.
#[test]
fn ten_kubectl_in_a_row_run_a_slow_plugin_once_cred_28() {
    let Some(cluster) = Cluster::start() else { return };
    let cached = Cached::new(&cluster, "sleep 1", &[]);
    for _ in 0..10 {
        cached.get().succeeds();
    }
    assert_eq!(cached.plugin.runs(), 1);
    assert!(cached.waybill(&["credential", "list"]).contains("/plugin   -        "));
    // Our own client is one among others.
    let ran = cluster.waybill(&["get", &cached.flag, "pods"]);
    ran.fails_with(1, "pods is forbidden: User \"alice\" cannot list resource");
}

/// CRED-29
#[test]
fn twenty_kubectl_at_once_run_a_slow_plugin_once_cred_29() {
    let Some(cluster) = Cluster::start() else { return };
    let cached = Cached::new(&cluster, "sleep 1", &[]);
    thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| cached.get().succeeds().code);
        }
    });
    assert_eq!(cached.plugin.runs(), 1);
}

/// CRED-33: kubectl does not say that a server refused its credential; that the same process asks again does.
#[test]
fn a_refused_credential_is_replaced_cred_33() {
    let Some(cluster) = Cluster::start() else { return };
    let cached = Cached::new(&cluster, "", &[]);
    cached.plugin.answer_with("mallory-token", None);
    cached.get().fails_with(1, "Unauthorized");
    let runs = cached.plugin.runs();
    assert!(runs >= 2, "as without the cache");
    // The next kubectl gets the refused one first; whether it then fails differs from version to version.
    cached.plugin.answer_with("alice-token", None);
    cached.get();
    let runs = runs + 1;
    assert_eq!(cached.plugin.runs(), runs);
    for _ in 0..3 {
        cached.get().succeeds();
    }
    assert_eq!(cached.plugin.runs(), runs);
}

/// kubectl runs its plugin twice if it reads manifests from standard input, which looks like a refusal and is none.
#[test]
fn manifests_from_standard_input_cost_no_run_cred_28() {
    let Some(cluster) = Cluster::start() else { return };
    let cached = Cached::new(&cluster, "", &[]);
    let line = format!("{} apply --validate=false -f -", cached.flag);
    let manifest = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}";
    let apply = || cluster.kubectl_with_input(&line, manifest);
    for _ in 0..3 {
        apply().fails_with(1, "User \"alice\" cannot get resource \"configmaps\"");
    }
    assert_eq!(cached.plugin.runs(), 1);
}

/// CRED-30
#[test]
fn an_expired_credential_is_replaced_cred_30() {
    let Some(cluster) = Cluster::start() else { return };
    let cached = Cached::new(&cluster, "", &[]);
    cached.plugin.answer_with("alice-token", Some("2001-01-01T00:00:00Z"));
    cached.get().succeeds();
    cached.get().succeeds();
    let runs = cached.plugin.runs();
    assert!(runs >= 2, "it has expired from the beginning");

    let soon = jiff::Timestamp::now() + std::time::Duration::from_secs(3);
    cached.plugin.answer_with("alice-token", Some(&soon.to_string()));
    cached.get().succeeds();
    assert_eq!(cached.plugin.runs(), runs + 1);
    let start = Instant::now();
    while cached.plugin.runs() == runs + 1 {
        cached.get().succeeds();
        assert!(start.elapsed() < PATIENCE, "it is used for ever");
    }
}

/// CRED-24: without an expiry a credential is kept for as long as the flag says.
#[test]
fn a_credential_without_expiry_is_not_kept_for_ever_cred_24() {
    let Some(cluster) = Cluster::start() else { return };
    let cached = Cached::new(&cluster, "", &["--max-age", "0s"]);
    cached.get().succeeds();
    cached.get().succeeds();
    assert_eq!(cached.plugin.runs(), 2);
}

#[test]
fn what_is_forgotten_is_asked_for_again() {
    let Some(cluster) = Cluster::start() else { return };
    let cached = Cached::new(&cluster, "", &[]);
    cached.get().succeeds();
    assert_eq!(
        cached.waybill(&["credential", "forget", "elsewhere"]),
        "there was nothing to forget\n"
    );
    cached.get().succeeds();
    assert_eq!(cached.plugin.runs(), 1);
    assert_eq!(cached.waybill(&["credential", "forget", "--all"]), "forgot 1 credential\n");
    cached.get().succeeds();
    assert_eq!(cached.plugin.runs(), 2);
}

#[test]
fn an_agent_that_is_killed_is_replaced() {
    let Some(cluster) = Cluster::start() else { return };
    let cached = Cached::new(&cluster, "", &[]);
    for runs in 1..=3 {
        cached.get().succeeds();
        cached.get().succeeds();
        assert_eq!(cached.plugin.runs(), runs);
        cached.plugin.kill_agent();
        assert_eq!(cached.plugin.agent(), None);
        assert!(cached.plugin.socket_dir().join("credential-1.sock").exists(), "it is left behind");
    }
}

/// CRED-37, CRED-20: kubectl sees what the plugin did.
#[test]
fn a_plugin_that_fails_is_told_by_its_own_name_cred_20_37() {
    let Some(cluster) = Cluster::start() else { return };
    let cached = Cached::new(&cluster, "test -e good || exit 7", &[]);
    let ran = cached.get();
    ran.fails_with(1, "failed with exit code 7");
    let name = cached.plugin.path("plugin").display().to_string();
    ran.fails_with(1, &format!("exec: executable {name} failed with exit code 7"));
    fs::write(cached.plugin.path("good"), "").unwrap();
    fs::write(cached.plugin.path("answer"), "nonsense").unwrap();
    cached.get().fails_with(1, "getting credentials: decoding stdout: ");
    cached.plugin.answer_with("alice-token", None);
    cached.get().succeeds();
}

/// CRED-50: the plugin talks to whoever sits before kubectl, and scripts have the credential afterwards.
#[test]
fn a_plugin_has_kubectls_terminal_cred_16_17_50() {
    let Some(cluster) = Cluster::start() else { return };
    let talk = "test -t 0 || { echo >&2 no terminal; exit 1; }\n\
                case $KUBERNETES_EXEC_INFO in *'\"interactive\":true'*) ;; *) exit 2;; esac\n\
                printf 'Password: ' >&2; read -r word; test \"$word\" = swordfish";
    let cached = Cached::new(&cluster, talk, &[]);
    cached.get().fails_with(1, "no terminal");

    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&controller).unwrap();
    unlockpt(&controller).unwrap();
    let name = ptsname(&controller, Vec::new()).unwrap();
    let terminal = fs::File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    let mut child = cluster
        .command(&KUBECTL.find().unwrap())
        .args([&cached.flag, "get", "--raw=/api"])
        .stdin(terminal)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It asks first, and then there is somebody who answers.
    let mut prompt = [0; 10];
    child.stderr.as_mut().unwrap().read_exact(&mut prompt).unwrap();
    assert_eq!(&prompt, b"Password: ");
    fs::File::from(controller.try_clone().unwrap()).write_all(b"swordfish\n").unwrap();
    let ran = Ran::of("kubectl on a terminal".to_owned(), child);
    ran.succeeds();

    let runs = cached.plugin.runs();
    cached.get().succeeds();
    assert_eq!(cached.plugin.runs(), runs, "a script has what a person typed for");
}
