//! A known token, key and password go through everything that can happen, and nothing that we write holds them.

use std::{
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use tracing_subscriber::{filter::LevelFilter, fmt::MakeWriter};

use crate::{
    certificates::Authority,
    support::{Plugin, answer, serve, token},
};

const CANARY: &str = "kanarie-0123456789abcdef";

/// Everything that is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// CRED-26: at the lowest level, which the libraries below us follow too.
#[tokio::test]
async fn no_secret_is_in_any_log_error_or_debug_output_cred_26() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_writer(log.clone())
        .with_ansi(false)
        .finish();
    // With a single subscriber, `tracing` asks only the thread that comes first to a line whether it is wanted; the tests
    // beside this one have none, and would silence it here.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    let _guard = tracing::subscriber::set_default(subscriber);
    let mut shown = Vec::new();

    let authority = Authority::new();
    let mut plugin = Plugin::answering();
    let address = serve(Some(authority.server()), |_, request| {
        answer(if token(request).starts_with(CANARY) { 200 } else { 401 })
    })
    .await;
    let mut status = authority.issue("jane");
    let key = status["clientKeyData"].as_str().unwrap().lines().nth(1).unwrap().to_owned();
    plugin.exec.args.as_mut().unwrap().push(CANARY.to_owned());
    let secret = [("name", "SECRET"), ("value", CANARY)];
    let secret = secret.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    plugin.exec.env.as_mut().unwrap().push(secret);
    let mut config = authority.config(&plugin, address);
    let mut taken = config.clone();
    let authenticator = plugin.registry.take_plugin("u", &mut taken, &plugin.options);
    let authenticator = authenticator.unwrap().unwrap();
    shown.push(format!("{:?}", plugin.registry.take_plugin("u", &mut config, &plugin.options)));
    let client = plugin.client_of(authority.config(&plugin, address));

    // It is used, refused, expires, and rotates.
    for (token, life) in [(CANARY, 10), ("refused", 10), (&format!("{CANARY}-2"), 10)] {
        status["token"] = token.into();
        plugin.answer(&status, Some(Duration::from_secs(life)));
        let sent = client.apiserver_version().await;
        shown.push(format!("{sent:?}"));
        shown.push(format!("{authenticator:?} {:?}", authenticator.cached()));
        plugin.clock.advance(Duration::from_secs(life + 1));
    }
    // It is cut off, misses a quote, is for another version, and has a line break.
    let good = std::fs::read_to_string(plugin.file("answer")).unwrap();
    for bad in [
        good[..good.len() - 20].to_owned(),
        good.replacen('"', "", 1),
        good.replace("k8s.io/v1", "k8s.io/v9"),
        good.replace(CANARY, &format!("{CANARY}\\n")),
        good.replace("BEGIN PRIVATE", "BEGIN CANARY"),
        good.replace("BEGIN CERTIFICATE", "BEGIN CANARY"),
        format!("{CANARY} {good}"),
    ] {
        std::fs::write(plugin.file("answer"), bad).unwrap();
        plugin.clock.advance(Duration::from_hours(1));
        let error = authenticator.credential().await.unwrap_err();
        shown.push(format!("{error} {error:?}"));
    }

    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(
        log.contains("TRACE") && log.contains("credential plugin failed"),
        "nothing was logged"
    );
    for (what, text) in [("log", log), ("output", shown.join("\n"))] {
        for secret in [CANARY, &key] {
            let line = text.lines().find(|line| line.contains(secret));
            assert_eq!(line, None, "a secret is in the {what}");
        }
    }
    assert!(plugin.runs() >= 3);
}
