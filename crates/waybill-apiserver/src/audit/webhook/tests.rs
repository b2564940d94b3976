//! A service that is slow, broken or gone, and what it gets in the end.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

use serde_json::Value;

use super::*;

/// A service that answers with the codes that it is told, and then with success.
struct Service {
    address: std::net::SocketAddr,
    /// The names of the events in each batch that it answered, and the code.
    batches: mpsc::Receiver<(Vec<String>, u16)>,
}

impl Service {
    fn start(codes: Vec<u16>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, batches) = mpsc::channel();
        std::thread::spawn(move || {
            let mut codes = codes.into_iter();
            for stream in listener.incoming().map_while(Result::ok) {
                serve(&stream, &mut codes, &sender);
            }
        });
        Self { address, batches }
    }

    fn target(&self) -> WebhookTarget {
        target(self.address)
    }

    /// What comes next.
    fn next(&self) -> (Vec<String>, u16) {
        self.batches.recv_timeout(Duration::from_secs(60)).unwrap()
    }
}

fn target(address: std::net::SocketAddr) -> WebhookTarget {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("webhook.yaml");
    let text = format!(
        "{{clusters: [{{name: c, cluster: {{server: 'http://{address}/audit'}}}}],
          contexts: [{{name: x, context: {{cluster: c, user: u}}}}], current-context: x,
          users: [{{name: u, user: {{token: abc}}}}]}}"
    );
    std::fs::write(&path, text).unwrap();
    WebhookTarget::read(&path).unwrap()
}

/// Answers requests of one connection until it ends.
fn serve(
    stream: &TcpStream,
    codes: &mut impl Iterator<Item = u16>,
    batches: &mpsc::Sender<(Vec<String>, u16)>,
) {
    let mut reader = BufReader::new(stream);
    loop {
        let (mut length, mut line, mut head) = (0, String::new(), Vec::new());
        while reader.read_line(&mut line).unwrap_or(0) > 2 {
            let lower = line.to_ascii_lowercase();
            if let Some(value) = lower.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            head.push(std::mem::take(&mut line));
        }
        if head.is_empty() {
            return;
        }
        assert!(head[0].starts_with("POST /audit HTTP/1.1"), "{head:?}");
        assert!(head.iter().any(|line| line.trim().ends_with("Bearer abc")), "{head:?}");
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let list: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(
            (&list["kind"], &list["apiVersion"]),
            (&"EventList".into(), &"audit.k8s.io/v1".into())
        );
        let name = |event: &Value| match event["verb"].as_str() {
            Some("notice") => format!("lost {}", event["annotations"]["audit.waybill.dev/events"]),
            _ => event["n"].to_string(),
        };
        let names = list["items"].as_array().unwrap().iter().map(name).collect();
        let code = codes.next().unwrap_or(200);
        let mut stream = stream;
        write!(stream, "HTTP/1.1 {code} x\r\ncontent-length: 2\r\n\r\nok").unwrap();
        if batches.send((names, code)).is_err() {
            return;
        }
    }
}

/// Nothing waits for anything in these, so that tests do not either.
fn quick() -> WebhookOptions {
    WebhookOptions {
        max_batch_wait: Duration::ZERO,
        initial_backoff: Duration::from_millis(1),
        throttle: None,
        ..WebhookOptions::default()
    }
}

fn start(target: WebhookTarget, options: WebhookOptions) -> (Webhook, WebhookMetrics) {
    let metrics = WebhookMetrics::default();
    let clock: Clock = Arc::new(|| Timestamp::UNIX_EPOCH);
    (Webhook::start(target, options, metrics.clone(), clock).unwrap(), metrics)
}

fn lines(numbers: std::ops::Range<u32>) -> Vec<u8> {
    numbers.flat_map(|number| format!("{{\"n\":{number}}}\n").into_bytes()).collect()
}

fn take(webhook: &Webhook, numbers: std::ops::Range<u32>) {
    webhook.take(Timestamp::UNIX_EPOCH, &lines(numbers));
}

#[test]
fn events_come_in_order_and_in_batches() {
    let service = Service::start(Vec::new());
    let (webhook, metrics) =
        start(service.target(), WebhookOptions { max_batch_size: 2, ..quick() });
    take(&webhook, 0..5);
    let mut names = Vec::new();
    while names.len() < 5 {
        let (batch, _) = service.next();
        assert!(batch.len() <= 2);
        names.extend(batch);
    }
    assert_eq!(names, ["0", "1", "2", "3", "4"]);
    drop(webhook);
    assert_eq!((metrics.sent.get(), metrics.lost.get()), (5, 0));
}

#[test]
fn what_is_refused_is_sent_again() {
    let service = Service::start(vec![500, 503, 403]);
    let (webhook, metrics) = start(service.target(), quick());
    take(&webhook, 0..3);
    for code in [500, 503, 403, 200] {
        assert_eq!(service.next(), (vec!["0".into(), "1".into(), "2".into()], code));
    }
    drop(webhook);
    assert_eq!((metrics.failing.get(), metrics.sent.get(), metrics.lost.get()), (0, 3, 0));
}

#[test]
fn what_finds_no_room_is_counted_and_told() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (webhook, metrics) = start(target(address), WebhookOptions { buffer_size: 3, ..quick() });
    // Nobody answers yet, so whatever is under way keeps its place.
    take(&webhook, 0..10);
    assert_eq!(metrics.lost.get(), 7);
    let (sender, batches) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            serve(&stream, &mut std::iter::empty(), &sender);
        }
    });
    let mut names = Vec::new();
    while names.len() < 4 {
        names.extend(batches.recv_timeout(Duration::from_secs(60)).unwrap().0);
    }
    // Places are free again when we know that the service has what it has.
    while metrics.sent.get() < 3 {
        std::thread::yield_now();
    }
    take(&webhook, 10..11);
    while !names.contains(&"10".to_owned()) {
        names.extend(batches.recv_timeout(Duration::from_secs(60)).unwrap().0);
    }
    assert_eq!(names, ["lost \"7\"", "0", "1", "2", "10"]);
    drop(webhook);
    assert_eq!(metrics.sent.get(), 4);
}

#[test]
fn what_is_left_is_sent_when_the_server_ends() {
    let service = Service::start(Vec::new());
    let hour = Duration::from_secs(3600);
    let (webhook, _) = start(service.target(), WebhookOptions { max_batch_wait: hour, ..quick() });
    take(&webhook, 0..2);
    drop(webhook);
    assert_eq!(service.next(), (vec!["0".into(), "1".into()], 200));
}

#[test]
fn a_service_that_is_gone_holds_nobody_up() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (webhook, metrics) = start(target(address), quick());
    take(&webhook, 0..2);
    drop(webhook);
    assert_eq!((metrics.lost.get(), metrics.failing.get()), (2, 1));
}

#[test]
fn who_blocks_returns_when_the_service_has_the_events() {
    let service = Service::start(vec![500]);
    let (webhook, metrics) =
        start(service.target(), WebhookOptions { mode: Mode::Blocking, ..quick() });
    take(&webhook, 0..2);
    assert_eq!(metrics.sent.get(), 2);
}

/// The file comes first: what it does not take the service does not learn, since it is written again.
#[test]
fn the_service_gets_what_the_file_has() {
    struct Half(bool);
    impl Sink for Half {
        fn append(&mut self, _: Timestamp, _: &[u8]) -> io::Result<()> {
            self.0 = !self.0;
            if self.0 { Err(io::Error::other("full")) } else { Ok(()) }
        }
        fn sync(&mut self) -> io::Result<()> {
            Ok(())
        }
        fn make_room(&mut self) -> io::Result<()> {
            Ok(())
        }
        fn reopen(&mut self, _: Timestamp) -> io::Result<()> {
            Ok(())
        }
    }
    let service = Service::start(Vec::new());
    let (webhook, _) = start(service.target(), quick());
    let mut tee = Tee { file: Half(false), webhook: Some(Arc::new(webhook)) };
    assert!(tee.append(Timestamp::UNIX_EPOCH, &lines(0..1)).is_err());
    tee.append(Timestamp::UNIX_EPOCH, &lines(0..1)).unwrap();
    drop(tee);
    assert_eq!(service.next(), (vec!["0".into()], 200));
    assert!(service.batches.recv_timeout(Duration::from_millis(1)).is_err());
}
