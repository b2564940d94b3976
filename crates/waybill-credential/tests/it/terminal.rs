//! Plugins that talk to a person: a client on a terminal, the plugin of `examples/`, and somebody who types.

use std::{
    env,
    fs::File,
    io::{Read, Write},
    os::fd::OwnedFd,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use kube::config::ExecInteractiveMode;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, OFlags, open},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
};
use waybill_credential::Stdin;

use crate::{
    examples::example,
    support::{Plugin, eventually, lives},
};

const PATIENCE: Duration = Duration::from_secs(60);

/// What the client does: its plugin, and who has standard input.
const TASK: &str = "WAYBILL_TEST_CLIENT";

/// A client that was started on a terminal of its own, and whoever sits there.
struct Client {
    child: Child,
    keyboard: File,
    screen: String,
}

impl Client {
    /// Whose standard input is a terminal.
    fn start(task: &str) -> Self {
        let client = Command::new(env::current_exe().unwrap());
        Self::run(task, client)
    }

    /// The same; and that terminal is the one of its session, which `/dev/tty` means.
    fn start_session(task: &str) -> Self {
        let mut setsid = Command::new("setsid");
        setsid.arg("--ctty").arg(env::current_exe().unwrap());
        Self::run(task, setsid)
    }

    fn run(task: &str, mut client: Command) -> Self {
        let keyboard =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&keyboard).unwrap();
        unlockpt(&keyboard).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let terminal = open(ptsname(&keyboard, Vec::new()).unwrap(), flags, Mode::empty()).unwrap();
        let terminal = || -> OwnedFd { terminal.try_clone().unwrap() };
        let child = client
            .args(["--exact", "terminal::client", "--nocapture", "--quiet"])
            .env(TASK, task)
            .stdin(Stdio::from(terminal()))
            .stdout(Stdio::piped())
            .stderr(Stdio::from(terminal()))
            .spawn()
            .unwrap();
        Self { child, keyboard: keyboard.into(), screen: String::new() }
    }

    /// Waits until the screen shows `text`.
    fn sees(&mut self, text: &str) {
        let start = Instant::now();
        while !self.screen.contains(text) {
            let mut fds = [PollFd::new(&self.keyboard, PollFlags::IN)];
            let second = Timespec { tv_sec: 1, tv_nsec: 0 };
            let ready = poll(&mut fds, Some(&second)).unwrap();
            assert!(start.elapsed() < PATIENCE, "no {text:?} in {:?}", self.screen);
            if ready > 0 {
                let mut bytes = [0; 1024];
                // It fails when nobody has the terminal any more.
                let read = self.keyboard.read(&mut bytes).unwrap_or_else(|_| {
                    panic!("the client ended without {text:?}: {:?}", self.screen)
                });
                self.screen += &String::from_utf8_lossy(&bytes[..read]);
            }
        }
    }

    fn types(&mut self, line: &str) {
        writeln!(self.keyboard, "{line}").unwrap();
    }

    /// What it said of its credential in the end.
    fn end(mut self) -> String {
        let mut said = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(self.child.wait().unwrap().success(), "{said}");
        let line = said.lines().find_map(|line| line.split_once("the end: "));
        line.unwrap_or_else(|| panic!("nothing was said: {said}")).1.to_owned()
    }
}

/// Not a test of its own, but the client in those below; without a task it ends at once.
#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "it is told what to do by its environment")]
async fn client() {
    let Ok(task) = env::var(TASK) else { return };
    let mut plugin = Plugin::running("cat \"$ANSWER\"");
    plugin.exec.interactive_mode = Some(ExecInteractiveMode::Always);
    match task.as_str() {
        "login" => {
            plugin.exec.command = Some(example("login_plugin"));
            plugin.exec.args = None;
            plugin.exec.provide_cluster_info = true;
        }
        "if available" => {
            plugin.exec.interactive_mode = Some(ExecInteractiveMode::IfAvailable);
            plugin.exec.args.as_mut().unwrap()[1] =
                "echo $KUBERNETES_EXEC_INFO >&2; read answer; echo \"$answer\"".to_owned();
        }
        "taken" => {
            plugin.options.stdin =
                Stdin::Taken("used by stdin resource manifest reader".to_owned());
        }
        "asks by itself" => {
            plugin.exec.interactive_mode = Some(ExecInteractiveMode::Never);
            let script = "exec 3<>/dev/tty; printf 'Who? ' >&3; stty -echo <&3; read answer <&3; echo \"$answer\"";
            plugin.exec.args.as_mut().unwrap()[1] = script.to_owned();
        }
        "hangs" => {
            plugin.exec.interactive_mode = Some(ExecInteractiveMode::Never);
            plugin.options.timeout = Duration::from_secs(2);
            let script = "(sleep 1000 & echo $! >\"$DIR/orphan\"); sleep 1000 & echo $! >\"$DIR/child\"; \
                          echo $$ >\"$DIR/self\"; wait; wait";
            plugin.exec.args.as_mut().unwrap()[1] = script.to_owned();
        }
        other => panic!("no such task: {other}"),
    }
    let end = match plugin.authenticator().credential().await {
        Ok(credential) => credential.authorization().unwrap().to_str().unwrap().to_owned(),
        Err(error) => error.to_string(),
    };
    if task == "hangs" {
        assert!(!lives(&plugin.file("self")), "it was waited for");
        for name in ["child", "orphan"] {
            eventually(name, || !lives(&plugin.file(name))).await;
        }
    }
    println!("the end: {end}");
}

/// CRED-16, CRED-17, CRED-50, CRED-51: and what is typed is not shown.
#[test]
fn somebody_logs_in_on_a_terminal_cred_16_17_50_51() {
    let mut client = Client::start("login");
    client.sees("Token for http://127.0.0.1:1/: ");
    client.types("typed-by-hand");
    client.sees(": \r\n");
    assert!(!client.screen.contains("typed-by-hand"), "{:?}", client.screen);
    assert_eq!(client.end(), "Bearer typed-by-hand");
}

/// CRED-17, CRED-18: a terminal that is free is lent, and the plugin is told so.
#[test]
fn a_terminal_is_lent_if_it_is_available_cred_17_18() {
    let mut client = Client::start("if available");
    client.sees("\"interactive\":true");
    client.types(
        r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"from-a-person"}}"#,
    );
    assert_eq!(client.end(), "Bearer from-a-person");
}

/// CRED-18, CRED-40
#[test]
fn a_terminal_that_the_client_reads_itself_is_not_lent_cred_18_40() {
    assert_eq!(
        Client::start("taken").end(),
        "getting credentials: exec plugin cannot support interactive mode: standard input is unavailable: \
         used by stdin resource manifest reader"
    );
}

/// CRED-18. Hole: such a plugin was stopped by the terminal, as one of a background group, and killed when its time was over.
#[test]
fn a_plugin_may_open_the_terminal_itself_as_in_client_go_cred_18() {
    let mut client = Client::start_session("asks by itself");
    client.sees("Who? ");
    client.types(
        r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"by-tty"}}"#,
    );
    assert_eq!(client.end(), "Bearer by-tty");
}

/// CRED-38: it is in our process group then, which must survive.
#[test]
fn a_plugin_that_hangs_on_a_terminal_is_killed_with_its_children_cred_38() {
    let end = Client::start_session("hangs").end();
    assert!(end.contains("did not finish within 2 s and was killed"), "{end}");
}
