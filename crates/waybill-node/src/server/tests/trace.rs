//! The record of what ran: who gets it, and how it is passed on.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixListener,
    path::PathBuf,
    sync::mpsc::{Receiver, channel},
    thread,
};

use waybill_api::trace::TRACE_HEADER;

use super::{Client, Fixture, Setup};

const PATH: &str = "/waybill/v1/trace?user=anna&programs=true";

/// A collector that gives one answer to everybody, and tells what it was asked.
struct FakeCollector {
    directory: tempfile::TempDir,
    asked: Receiver<String>,
}

impl FakeCollector {
    fn start(answer: &'static str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("trace.sock")).unwrap();
        let (sender, asked) = channel();
        thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                let mut line = String::new();
                BufReader::new(&connection).read_line(&mut line).unwrap();
                let _ = (&connection).write_all(answer.as_bytes());
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { directory, asked }
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("trace.sock")
    }
}

async fn fixture(collector: Option<PathBuf>) -> Fixture {
    Fixture::with(Setup { collector, ..Setup::default() }).await
}

fn asking(client: Client) -> Client {
    client.with_header(TRACE_HEADER, "1")
}

#[tokio::test]
async fn the_api_server_gets_every_byte_and_its_query_reaches_the_collector() {
    let collector = FakeCollector::start("ok\n{\"n\":1}\n\n{\"wire\":\"end\"}\n");
    let fixture = fixture(Some(collector.socket())).await;
    let said = asking(fixture.client()).get(PATH).await;
    assert_eq!(said.summary(), (200, "{\"n\":1}\n\n{\"wire\":\"end\"}\n"));
    assert_eq!(collector.asked.recv().unwrap(), "user=anna&programs=true\n");
    let asked = fixture.cluster().asked();
    assert!(asked[0].starts_with("kube-apiserver-kubelet-client get trace as"), "{asked:?}");
}

/// Who reads it is on the audit log of the API server alone.
#[tokio::test]
async fn nobody_else_gets_it_whatever_their_rights() {
    let collector = FakeCollector::start("ok\n");
    let fixture = fixture(Some(collector.socket())).await;
    // As `nodes/proxy` asks, in the API server's name and with a path of the client's.
    let proxied = fixture.client().get(PATH).await;
    let admin = asking(fixture.client_as("root", &["system:masters"])).get(PATH).await;
    let token = asking(fixture.anonymous().with_token("good")).get(PATH).await;
    for said in [proxied, admin, token] {
        assert_eq!(said.code, 403);
        assert!(said.text.contains("told to the API server alone"), "{}", said.text);
    }
    fixture.cluster().deny("other-apiserver get trace");
    let other = asking(fixture.client_as("other-apiserver", &["waybill:node-clients"]));
    assert_eq!(other.get(PATH).await.code, 403);
    assert!(collector.asked.try_recv().is_err(), "nobody came through");
}

#[tokio::test]
async fn why_there_is_no_record_is_told() {
    let missing = fixture(None).await;
    assert_eq!(asking(missing.client()).get(PATH).await.code, 503);
    let gone = fixture(Some("/nonexistent/trace.sock".into())).await;
    let said = asking(gone.client()).get(PATH).await;
    assert!(said.code == 503 && said.text.contains("no collector answers"), "{}", said.text);
    let busy = FakeCollector::start("busy others read the record now\n");
    let said = asking(fixture(Some(busy.socket())).await.client()).get(PATH).await;
    assert_eq!(said.summary(), (429, "others read the record now"));
    let refusing = FakeCollector::start("refused since is not a time\n");
    let fixture = fixture(Some(refusing.socket())).await;
    let said = asking(fixture.client()).get(PATH).await;
    assert_eq!(said.summary(), (400, "since is not a time"));
    let said = asking(fixture.client()).get("/waybill/v1/trace?colour=red").await;
    assert!(said.code == 400 && said.text.contains("no such parameter"), "{}", said.text);
}
