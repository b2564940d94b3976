//! More of what plugins may do, under stock kubectl and under our commands, on the same kubeconfigs (KEP-541).

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair};
use serde_json::{Value, json};
use waybill_testkit::kubectl::Running;

use crate::{
    cluster::Cluster,
    credential::{Plugin, answering, answering_status},
};

/// Alice may list nothing, and is told so by name.
const ALICE: &str = "pods is forbidden: User \"alice\" cannot list resource";

/// CRED-30: one that has expired is used once; whoever comes next asks the plugin again. In kubectl each handshake does,
/// too, so it has more runs for the same requests.
#[test]
fn an_expired_credential_costs_a_run_for_each_request_and_more_in_kubectl_cred_30() {
    let Some(cluster) = Cluster::start() else { return };
    let plugin = Plugin::new(&cluster);
    let expired = json!({"token": "alice-token", "expirationTimestamp": "2020-01-01T00:00:00Z"});
    let flag = plugin.flag(&answering_status(&expired));
    cluster.kubectl(&format!("{flag} get --raw=/api")).succeeds();
    assert!(plugin.runs() > 1, "for one request");
    let flag = plugin.flag(&answering_status(&expired));
    let exec = cluster.waybill(&["exec", &flag, "web", "--", "true"]);
    exec.fails_with(1, "User \"alice\" cannot");
    assert_eq!(plugin.runs(), 1, "for one request");
    cluster.waybill(&["get", &flag, "pods"]).fails_with(1, ALICE);
    assert!(plugin.runs() > 2, "discovery and the list are two requests at least");
}

/// CRED-33: both run the plugin once more, and no request of ours is lost.
#[test]
fn a_token_that_is_renewed_after_a_refusal_is_used_at_once_cred_33() {
    let Some(cluster) = Cluster::start() else { return };
    let plugin = Plugin::new(&cluster);
    let script = format!(
        "if [ $(wc -l <$0) = 1 ]; then {}; else {}; fi",
        answering("mallory-token"),
        answering("alice-token")
    );
    let flag = plugin.flag(&script);
    // Whether it succeeds depends on how many requests it sends.
    let _ = cluster.kubectl(&format!("{flag} get --raw=/api"));
    assert_eq!(plugin.runs(), 2);
    let flag = plugin.flag(&script);
    cluster.waybill(&["get", &flag, "pods"]).fails_with(1, ALICE);
    assert_eq!(plugin.runs(), 2);
    // A session is a connection of its own, and is asked for again, too.
    let flag = plugin.flag(&script);
    let exec = cluster.waybill(&["exec", &flag, "web", "--", "true"]);
    exec.fails_with(1, "User \"alice\" cannot");
    assert_eq!(plugin.runs(), 2);
}

/// CRED-35
#[test]
fn a_static_token_beside_a_plugin_wins_in_both_cred_35() {
    let Some(cluster) = Cluster::start() else { return };
    let plugin = Plugin::new(&cluster);
    let flag = plugin.flag_with("exit 1", |kubeconfig| {
        kubeconfig["users"][0]["user"]["token"] = "alice-token".into();
    });
    cluster.kubectl(&format!("{flag} get --raw=/api")).succeeds();
    cluster.waybill(&["get", &flag, "pods"]).fails_with(1, ALICE);
    assert_eq!(plugin.runs(), 0);
}

/// CRED-06, CRED-10, CRED-11, CRED-12, CRED-13, CRED-14, CRED-17: the plugin is asked the same by both, to the last key.
#[test]
fn plugins_are_asked_the_same_question_cred_06_to_17() {
    let Some(cluster) = Cluster::start() else { return };
    let plugin = Plugin::new(&cluster);
    let asked = plugin.dir.path().join("asked");
    let script = format!(
        "echo \"$KUBERNETES_EXEC_INFO\" >{}; {}",
        asked.display(),
        answering("alice-token")
    );
    let question = || -> Value {
        let text = fs::read_to_string(&asked).unwrap();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    };
    for told in [false, true] {
        let flag = plugin.flag_with(&script, |kubeconfig| {
            kubeconfig["users"][0]["user"]["exec"]["provideClusterInfo"] = told.into();
            kubeconfig["clusters"][0]["cluster"]["tls-server-name"] = "127.0.0.1".into();
            kubeconfig["clusters"][0]["cluster"]["extensions"] = json!([
                {"name": "client.authentication.k8s.io/exec", "extension": {"audience": [1, null, "x"]}},
                {"name": "other", "extension": {"not": "for plugins"}},
            ]);
        });
        cluster.kubectl(&format!("{flag} get --raw=/api")).succeeds();
        let stock = question();
        cluster.waybill(&["get", &flag, "pods"]).fails_with(1, ALICE);
        assert_eq!(question(), stock, "provideClusterInfo: {told}");
        assert_eq!(stock["spec"].get("cluster").is_some(), told);
    }
}

/// CRED-23, CRED-25, CRED-28: a certificate of the plugin, with which the API server knows somebody.
#[test]
fn a_certificate_of_a_plugin_is_shown_to_the_server_by_both_cred_23_25() {
    let Some(cluster) = Cluster::start() else { return };
    let plugin = Plugin::new(&cluster);
    let pki = cluster.state().join("pki");
    let read = |name: &str| fs::read_to_string(pki.join(name)).unwrap();
    let issuer = KeyPair::from_pem(&read("ca.key")).unwrap();
    let issuer = Issuer::from_ca_cert_pem(&read("ca.crt"), issuer).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, "carol");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let certificate = params.signed_by(&key, &issuer).unwrap().pem();
    let status =
        json!({"clientCertificateData": certificate, "clientKeyData": key.serialize_pem()});
    let answer = plugin.dir.path().join("answer");
    let text = answering_status(&status);
    let text = text.trim_start_matches("echo '").trim_end_matches('\'');
    fs::write(&answer, text).unwrap();
    let flag = plugin.flag(&format!("cat {}", answer.display()));
    cluster.kubectl(&format!("{flag} get pods")).fails_with(1, "User \"carol\" cannot list");
    assert_eq!(plugin.runs(), 1);
    cluster.waybill(&["get", &flag, "pods"]).fails_with(1, "User \"carol\" cannot list");
    assert_eq!(plugin.runs(), 2);
}

/// CRED-36: the words of a missing plugin are the same, but for what could move the cursor: kubectl spells it out, and we
/// leave it away.
#[test]
fn a_missing_plugin_is_told_in_the_same_words_cred_36() {
    let Some(cluster) = Cluster::start() else { return };
    let plugin = Plugin::new(&cluster);
    let flag = plugin.flag_with("", |kubeconfig| {
        let exec = &mut kubeconfig["users"][0]["user"]["exec"];
        exec["command"] = "waybill-no-such-plugin".into();
        exec["installHint"] = "Get it at the counter.\u{1b}[31m\nBring coins.".into();
    });
    let stock = cluster.kubectl(&format!("{flag} get --raw=/api"));
    let ours = cluster.waybill(&["get", &flag, "pods"]);
    let words = |stderr: &str| {
        let (_, rest) = stderr.split_once("executable waybill-no-such-plugin not found").unwrap();
        rest.trim().to_owned()
    };
    assert_eq!(words(&ours.stderr), words(&stock.stderr).replace("U+001B[31m", ""));
    assert!(words(&ours.stderr).ends_with("Bring coins.") && !ours.stderr.contains('\u{1b}'));
}

/// CRED-18, CRED-40: nobody waits for a person who is not there.
#[test]
fn a_plugin_that_needs_a_terminal_fails_without_one_in_the_same_words_cred_18_40() {
    let Some(cluster) = Cluster::start() else { return };
    let plugin = Plugin::new(&cluster);
    let flag = plugin.flag_with("read line", |kubeconfig| {
        kubeconfig["users"][0]["user"]["exec"]["interactiveMode"] = "Always".into();
    });
    let words = "exec plugin cannot support interactive mode: standard input is not a terminal";
    cluster.kubectl(&format!("{flag} get --raw=/api")).fails_with(1, words);
    cluster.waybill(&["get", &flag, "pods"]).fails_with(1, words);
    assert_eq!(plugin.runs(), 0);
}

/// A command on a terminal of its own.
fn on_a_terminal(cluster: &Cluster, command: &str) -> Running {
    let mut script = cluster.command(Path::new("/usr/bin/script"));
    script.args(["--quiet", "--return", "--command", command, "/dev/null"]);
    Running::of(script.spawn().expect("every Debian has script"))
}

/// CRED-16, CRED-17, CRED-50: the dialogue of a plugin, from the prompt to the answer of the server.
#[test]
fn a_plugin_talks_to_a_person_on_the_terminal_of_either_client_cred_16_17_50() {
    let Some(cluster) = Cluster::start() else { return };
    let plugin = Plugin::new(&cluster);
    // The person types the name, and the script makes a token of it.
    let script = format!(
        "echo \"$KUBERNETES_EXEC_INFO\" | grep -q '\"interactive\":true' || exit 9; \
         echo 'Who are you?' >&2; read name; {}",
        answering("'$name'-token")
    );
    let flag = plugin.flag_with(&script, |kubeconfig| {
        kubeconfig["users"][0]["user"]["exec"]["interactiveMode"] = "Always".into();
    });
    let waybill = env!("CARGO_BIN_EXE_waybill");
    for command in [
        format!("$KUBECTL {flag} get pods"),
        // Nothing reads the terminal before the session has begun, so the plugin may.
        format!("$KUBECTL {flag} exec -it web -- sh"),
        format!("{waybill} get {flag} pods"),
        format!("{waybill} exec {flag} -it web -- sh"),
        format!("{waybill} credential run {flag}; {waybill} get {flag} pods"),
    ] {
        let mut client = on_a_terminal(&cluster, &command);
        for _ in 0..command.matches("credential run").count() + 1 {
            client.wait_for("Who are you?");
            writeln!(client.input(), "alice").unwrap();
        }
        client.wait_for("User \"alice\" cannot");
        assert_eq!(client.ends(), Some(1), "{command}");
    }
}

/// CRED-18: manifests come from standard input, so a plugin cannot have it, and says so in kubectl's words.
#[test]
fn a_plugin_gets_no_terminal_from_which_manifests_are_read_cred_18() {
    let Some(cluster) = Cluster::start() else { return };
    let plugin = Plugin::new(&cluster);
    let flag = plugin.flag_with("read line", |kubeconfig| {
        kubeconfig["users"][0]["user"]["exec"]["interactiveMode"] = "Always".into();
    });
    let waybill = env!("CARGO_BIN_EXE_waybill");
    for command in [
        format!("$KUBECTL {flag} apply -f -"),
        format!("{waybill} apply {flag} -f -"),
        format!("{waybill} delete {flag} -f -"),
    ] {
        let mut client = on_a_terminal(&cluster, &command);
        // The end of the input, as it is typed.
        client
            .input()
            .write_all(b"{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"c\"}}\n\x04")
            .unwrap();
        client.wait_for("standard input is unavailable: used by stdin resource manifest reader");
        assert_eq!(client.ends(), Some(1), "{command}");
    }
    assert_eq!(plugin.runs(), 0);
}

/// A proxy that counts what goes through it.
fn proxy() -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            counted.fetch_add(1, Ordering::SeqCst);
            thread::spawn(move || tunnel(client));
        }
    });
    (port, count)
}

fn tunnel(mut client: TcpStream) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).ok()?;
    let target = head.strip_prefix("CONNECT ")?.split(' ').next()?;
    let mut server = TcpStream::connect(target).ok()?;
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").ok()?;
    let (mut from, mut to) = (client.try_clone().ok()?, server.try_clone().ok()?);
    thread::spawn(move || std::io::copy(&mut from, &mut to));
    std::io::copy(&mut server, &mut client).ok()?;
    Some(())
}

/// CRED-50: `proxy-url` and a plugin together, for requests and for sessions.
#[test]
fn plugins_work_through_a_proxy_in_both_cred_50() {
    let Some(cluster) = Cluster::start() else { return };
    let plugin = Plugin::new(&cluster);
    let (port, count) = proxy();
    let flag = plugin.flag_with(&answering("alice-token"), |kubeconfig| {
        kubeconfig["clusters"][0]["cluster"]["proxy-url"] =
            format!("http://127.0.0.1:{port}").into();
    });
    cluster.kubectl(&format!("{flag} get pods")).fails_with(1, ALICE);
    let stock = count.load(Ordering::SeqCst);
    assert!(stock > 0);
    cluster.waybill(&["get", &flag, "pods"]).fails_with(1, ALICE);
    let list = count.load(Ordering::SeqCst);
    assert!(list > stock);
    let exec = cluster.waybill(&["exec", &flag, "web", "--", "true"]);
    exec.fails_with(1, "User \"alice\" cannot");
    assert!(count.load(Ordering::SeqCst) > list);
}
