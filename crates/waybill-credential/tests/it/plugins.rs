//! Plugins that behave badly, and what comes of it: bounded time, bounded memory, a clear error, no process left.

use std::{fs, time::Duration};

use kube::config::ExecInteractiveMode;
use waybill_credential::{OnUnauthorized, Policy};

use crate::support::{Plugin, eventually, lives};

#[track_caller]
fn check(error: &str, expected: &str) {
    assert_eq!(error, format!("getting credentials: {expected}"));
}

async fn error(plugin: &Plugin) -> String {
    plugin.authenticator().credential().await.unwrap_err().to_string()
}

/// CRED-09, CRED-10, CRED-11, CRED-16, CRED-17
#[tokio::test]
async fn a_plugin_sees_its_arguments_its_variables_and_our_question_cred_09_10() {
    let mut plugin = Plugin::running(
        "printf '%s\\n' \"$0\" \"$@\" \"$INHERITED\" \"$OWN\" \"$KUBERNETES_EXEC_INFO\" >\"$DIR/seen\"; \
         cat \"$ANSWER\"",
    );
    plugin.exec.args.as_mut().unwrap().extend(["a b", "$HOME;*"].map(str::to_owned));
    for (name, value) in [("OWN", "first"), ("OWN", "last"), ("KUBERNETES_EXEC_INFO", "forged")] {
        let entry = [("name", name), ("value", value)];
        let entry = entry.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        plugin.exec.env.as_mut().unwrap().push(entry);
    }
    for (name, value) in [("INHERITED", "yes"), ("OWN", "inherited")] {
        plugin.options.environment.push((name.into(), value.into()));
    }
    plugin.authenticator().credential().await.unwrap();
    assert_eq!(
        fs::read_to_string(plugin.file("seen")).unwrap(),
        "plugin\na b\n$HOME;*\nyes\nlast\n{\"kind\":\"ExecCredential\",\
         \"apiVersion\":\"client.authentication.k8s.io/v1\",\"spec\":{\"interactive\":false}}\n",
    );
}

/// CRED-36
#[tokio::test]
async fn missing_programs_are_named_with_help_cred_36() {
    let mut plugin = Plugin::answering();
    plugin.exec.install_hint = Some("\u{1b}[31mget it at the counter".to_owned());
    for command in ["waybill-no-such-plugin", "/nonexistent/plugin"] {
        plugin.exec.command = Some(command.to_owned());
        let error = error(&plugin).await;
        let start =
            format!("getting credentials: exec: executable {command} not found\n\nIt looks like");
        assert!(error.starts_with(&start), "{error}");
        assert!(error.ends_with("\n\nget it at the counter"), "{error}");
    }
}

/// CRED-37
#[tokio::test]
async fn failures_are_told_as_upstream_tells_them_cred_37() {
    let dir = tempfile::tempdir().unwrap();
    let [plain, script] = ["plain", "script"].map(|name| dir.path().join(name));
    fs::write(&plain, "").unwrap();
    fs::write(&script, "#!/nonexistent/interpreter\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&script, mode).unwrap();
    for (command, cause) in [
        (dir.path(), "permission denied"),
        (&plain, "permission denied"),
        (&script, "no such file or directory"),
    ] {
        let mut plugin = Plugin::answering();
        let command = command.display().to_string();
        plugin.exec.command = Some(command.clone());
        check(&error(&plugin).await, &format!("exec: fork/exec {command}: {cause}"));
    }
    check(
        &error(&Plugin::running("exit 3")).await,
        "exec: executable /bin/sh failed with exit code 3",
    );
    let killed = Plugin::running("kill -9 $$");
    check(&error(&killed).await, "exec: executable /bin/sh failed with exit code -1");
}

/// CRED-38
#[tokio::test]
async fn a_plugin_that_hangs_is_killed_with_its_children_cred_38_40() {
    let mut plugin = Plugin::running(
        "sleep 1000 & echo $! >\"$DIR/child\"; echo $$ >\"$DIR/self\"; read line; wait",
    );
    plugin.options.timeout = Duration::from_secs(2);
    check(
        &error(&plugin).await,
        "exec: executable /bin/sh did not finish within 2 s and was killed; if it waits for input, run it on a \
         terminal",
    );
    assert!(!lives(&plugin.file("self")), "it was waited for");
    eventually("its child is gone", || !lives(&plugin.file("child"))).await;
}

/// CRED-38
#[tokio::test]
async fn a_plugin_for_which_nobody_waits_is_killed_cred_38() {
    let plugin = Plugin::running(
        "sleep 1000 & echo $! >\"$DIR/child\"; mv \"$DIR/child\" \"$DIR/ready\"; wait",
    );
    let authenticator = plugin.authenticator();
    let ready = plugin.file("ready");
    tokio::select! {
        _ = authenticator.credential() => panic!("it hangs"),
        () = eventually("it runs", || ready.exists()) => {}
    }
    eventually("its child is gone", || !lives(&ready)).await;
}

/// CRED-20
#[tokio::test]
async fn garbage_and_floods_are_refused_cred_20() {
    check(
        &error(&Plugin::running("echo CANARY")).await,
        "decoding stdout: neither JSON nor YAML of an ExecCredential",
    );
    // 100 MB, of which a hundredth is read.
    let flood = Plugin::running("echo $$ >\"$DIR/self\"; head -c 100000000 /dev/zero");
    check(&error(&flood).await, "decoding stdout: the plugin printed more than 1048576 bytes");
    assert!(!lives(&flood.file("self")));
}

/// CRED-38
#[tokio::test]
async fn a_child_that_keeps_standard_output_open_delays_nobody_cred_38() {
    let plugin = Plugin::running("sleep 1000 & echo $! >\"$DIR/child\"; cat \"$ANSWER\"");
    plugin.authenticator().credential().await.unwrap();
    assert!(lives(&plugin.file("child")), "what a plugin leaves behind is its own affair");
    let child = fs::read_to_string(plugin.file("child")).unwrap().trim().parse().unwrap();
    let child = rustix::process::Pid::from_raw(child).unwrap();
    rustix::process::kill_process(child, rustix::process::Signal::KILL).unwrap();
}

/// CRED-18
#[tokio::test]
async fn always_interactive_needs_a_terminal_cred_18() {
    use std::io::IsTerminal;
    let mut plugin = Plugin::answering();
    plugin.exec.interactive_mode = Some(ExecInteractiveMode::Always);
    if std::io::stdin().is_terminal() {
        plugin.authenticator().credential().await.unwrap();
        return;
    }
    check(
        &error(&plugin).await,
        "exec plugin cannot support interactive mode: standard input is not a terminal",
    );
    assert_eq!(plugin.runs(), 0);
}

/// CRED-05
#[tokio::test]
async fn a_plugin_that_is_not_allowed_is_not_run_cred_05() {
    let mut plugin = Plugin::answering();
    plugin.options.policy = Policy::Allowlist(vec!["cat".to_owned()]);
    plugin.options.on_unauthorized = OnUnauthorized::Renew;
    check(
        &error(&plugin).await,
        "exec: executable /bin/sh is not allowed by the credential plugin policy",
    );
    assert_eq!(plugin.runs(), 0);
}
