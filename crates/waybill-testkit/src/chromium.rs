//! A real browser without a window, for tests of pages. It is told what to do over two pipes, in the protocol of its developer tools.
//!
//! Each test has a browser of its own, with an empty profile that ends with it.

#![expect(clippy::indexing_slicing, reason = "a member that JSON does not have is null")]

mod messages;
mod tab;

use std::{
    io::Write,
    path::PathBuf,
    process::{ChildStdin, Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;

use self::messages::Messages;
pub use self::tab::Tab;
use crate::{child::Killed, program::CHROMIUM};

/// Longer than anything takes on a machine that is busy with something else.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// The pipes are descriptors 3 and 4 there; a shell puts ours into these places.
const WITH_PIPES: &str = r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null"#;

/// Nothing of its own on the network, and no sandbox: tests run as root.
const FLAGS: [&str; 16] = [
    "--headless",
    "--remote-debugging-pipe",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--disable-features=Translate,OptimizationHints,MediaRouter",
    "--force-color-profile=srgb",
    "--font-render-hinting=none",
    "--hide-scrollbars=false",
];

/// A browser, which ends with its test.
#[derive(Debug)]
pub struct Chromium {
    process: Mutex<Killed>,
    commands: Mutex<ChildStdin>,
    messages: Arc<Messages>,
    next: AtomicU64,
    _profile: TempDir,
}

impl Chromium {
    /// Starts one; `None`, with a word about it, if this machine has none.
    pub fn start() -> Option<Self> {
        let program = CHROMIUM.find()?;
        let profile = tempfile::tempdir().expect("the temporary directory is writable");
        let mut process = Killed::spawn(
            Command::new("sh")
                .args(["-c", WITH_PIPES])
                .arg(&program)
                .args(FLAGS)
                .arg(format!("--user-data-dir={}", profile.path().display()))
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null()),
        );
        let child = process.get_mut();
        let commands = child.stdin.take().expect("stdin is piped");
        let told = child.stdout.take().expect("stdout is piped");
        let messages = Arc::new(Messages::default());
        let heard = Arc::clone(&messages);
        // Ends with the pipe.
        thread::spawn(move || heard.read(told));
        Some(Self {
            process: Mutex::new(process),
            commands: Mutex::new(commands),
            messages,
            next: AtomicU64::new(1),
            _profile: profile,
        })
    }

    /// A new tab of this size.
    pub fn tab(self: &Arc<Self>, width: u32, height: u32) -> Tab {
        let made = self.call(None, "Target.createTarget", &json!({"url": "about:blank"}));
        let attach = json!({"targetId": made["targetId"], "flatten": true});
        let attached = self.call(None, "Target.attachToTarget", &attach);
        let session = attached["sessionId"].as_str().expect("a session has an id").to_owned();
        Tab::new(Arc::clone(self), session, width, height)
    }

    /// Lets pages of an origin do something that a person would be asked about, such as writing to the clipboard.
    pub fn grant(&self, origin: &str, permissions: &[&str]) {
        let grant = json!({"origin": origin, "permissions": permissions});
        self.call(None, "Browser.grantPermissions", &grant);
    }

    /// Where files go that pages save.
    pub fn save_to(&self, folder: &std::path::Path) -> PathBuf {
        let to = json!({"behavior": "allow", "downloadPath": folder});
        self.call(None, "Browser.setDownloadBehavior", &to);
        folder.to_owned()
    }

    pub(crate) fn messages(&self) -> &Messages {
        &self.messages
    }

    /// Calls a method and waits for its answer.
    #[track_caller]
    pub(crate) fn call(&self, session: Option<&str>, method: &str, parameters: &Value) -> Value {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut message = json!({"id": id, "method": method, "params": parameters});
        if let Some(session) = session {
            message["sessionId"] = session.into();
        }
        let (sender, answer) = mpsc::channel();
        self.messages.expect(id, sender);
        self.send(&message);
        let answer = answer.recv_timeout(PATIENCE);
        let answer = answer.unwrap_or_else(|_| panic!("the browser does not answer {method}"));
        if let Some(error) = answer.get("error") {
            panic!("the browser refuses {method}: {error}");
        }
        answer["result"].clone()
    }

    fn send(&self, message: &Value) {
        let mut commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        let sent =
            commands.write_all(format!("{message}\0").as_bytes()).and_then(|()| commands.flush());
        sent.unwrap_or_else(|error| panic!("the browser is gone: {error}"));
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        // Its helpers end with it when it ends by itself.
        let close = json!({"id": 0, "method": "Browser.close"});
        let mut commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = commands.write_all(format!("{close}\0").as_bytes()).and_then(|()| commands.flush());
        drop(commands);
        self.messages.wait_for_end(Duration::from_secs(10));
        self.process.lock().unwrap_or_else(PoisonError::into_inner).kill();
    }
}
