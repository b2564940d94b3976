//! Logs, as clients read them.

use std::{fs, io::Write};

use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::timeout;
use waybill_proto::cri::ContainerState;

use super::{Fixture, PATIENCE, runtime::container, until};

const LOGS: &str = "/containerLogs/default/web/main";

impl Fixture {
    fn log(&self, lines: &[&str]) {
        let path = self.runtime.state().log.clone();
        let mut file = fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
        for line in lines {
            writeln!(file, "2026-08-01T10:00:00.000000001Z stdout F {line}").unwrap();
        }
    }
}

async fn next(body: &mut Incoming) -> Option<String> {
    let frame = timeout(PATIENCE, body.frame()).await.unwrap()?;
    Some(String::from_utf8(frame.unwrap().into_data().unwrap().to_vec()).unwrap())
}

#[tokio::test]
async fn a_log_is_read_as_it_was_asked_for() {
    let fixture = Fixture::new().await;
    fixture.log(&["one", "two", "three"]);
    let client = fixture.client();
    for (query, expected) in [
        ("", "one\ntwo\nthree\n"),
        ("?tailLines=1", "three\n"),
        ("?tailLines=0", ""),
        ("?limitBytes=5", "one\nt"),
        ("?stream=Stderr", ""),
        ("?tailLines=1&timestamps=true", "2026-08-01T10:00:00.000000001Z three\n"),
        ("?sinceTime=2026-08-01T10:00:00.1Z", ""),
    ] {
        let said = client.get(&format!("{LOGS}{query}")).await;
        assert_eq!(said.summary(), (200, expected), "{query}");
        assert_eq!(said.headers["content-type"], "text/plain");
    }
}

#[tokio::test]
async fn a_log_is_followed_through_rotation_to_the_containers_end() {
    let fixture = Fixture::new().await;
    fixture.log(&["one", "two"]);
    let answer = fixture.client().open(&format!("{LOGS}?follow=true&tailLines=1")).await;
    let mut body = answer.into_body();
    assert_eq!(next(&mut body).await.unwrap(), "two\n");
    fixture.log(&["three"]);
    assert_eq!(next(&mut body).await.unwrap(), "three\n");
    let path = fixture.runtime.state().log.clone();
    fs::rename(&path, fixture.runtime.dir().join("0.log.1")).unwrap();
    fixture.log(&["four"]);
    assert_eq!(next(&mut body).await.unwrap(), "four\n");
    fixture.log(&["last"]);
    fixture.runtime.set("c-main", ContainerState::ContainerExited);
    assert_eq!(next(&mut body).await.unwrap(), "last\n");
    assert_eq!(next(&mut body).await, None);
}

#[tokio::test]
async fn following_a_container_that_has_ended_ends_at_once() {
    let fixture = Fixture::new().await;
    fixture.log(&["one"]);
    fixture.runtime.set("c-main", ContainerState::ContainerExited);
    let said = fixture.client().get(&format!("{LOGS}?follow=true")).await;
    assert_eq!(said.summary(), (200, "one\n"));
}

#[tokio::test]
async fn following_ends_when_its_client_goes() {
    let fixture = Fixture::new().await;
    fixture.log(&["one"]);
    let idle = fixture.server.tasks.len();
    let answer = fixture.client().open(&format!("{LOGS}?follow=true")).await;
    let mut body = answer.into_body();
    assert_eq!(next(&mut body).await.unwrap(), "one\n");
    assert!(fixture.server.tasks.len() > idle);
    drop(body);
    until(|| fixture.server.tasks.len() == idle).await;
}

#[tokio::test]
async fn stopping_the_node_ends_following() {
    let fixture = Fixture::new().await;
    fixture.log(&["one"]);
    let answer = fixture.client().open(&format!("{LOGS}?follow=true")).await;
    let mut body = answer.into_body();
    assert_eq!(next(&mut body).await.unwrap(), "one\n");
    timeout(PATIENCE, fixture.server.stop()).await.unwrap();
    assert_eq!(next(&mut body).await, None);
}

#[tokio::test]
async fn the_previous_container_has_a_log_of_its_own() {
    let fixture = Fixture::new().await;
    fixture.log(&["old"]);
    let text = "previous terminated container \"main\" in pod \"web\" not found";
    let said = fixture.client().get(&format!("{LOGS}?previous=true")).await;
    assert_eq!(said.summary(), (400, text));
    let old = container("c-old", "u-1", "main", ContainerState::ContainerExited, 1);
    fixture.runtime.state().containers.push(old);
    let said = fixture.client().get(&format!("{LOGS}?previous=true")).await;
    assert_eq!(said.summary(), (200, "old\n"));
    assert_eq!(fixture.runtime.state().calls.last().unwrap(), "ContainerStatus");
}

#[tokio::test]
async fn what_has_no_log_is_said() {
    let fixture = Fixture::new().await;
    let client = fixture.client();
    let said = client.get("/containerLogs/default/other/main").await;
    assert_eq!(said.summary(), (404, "pod does not exist"));
    let said = client.get("/containerLogs/default/web/nope").await;
    assert_eq!(said.summary(), (404, "container \"nope\" not found in pod \"web\""));
    let said = client.get(&format!("{LOGS}?tailLines=-1")).await;
    let text = "query parameter tailLines must be greater than or equal to 0";
    assert_eq!(said.summary(), (422, text));
    fixture.runtime.set("c-main", ContainerState::ContainerCreated);
    let said = client.get(LOGS).await;
    let text = "container \"main\" in pod \"web\" is waiting to start: ContainerCreating";
    assert_eq!(said.summary(), (400, text));
    fixture.runtime.set("c-main", ContainerState::ContainerRunning);
    let said = client.get(LOGS).await;
    assert_eq!(said.code, 500);
    assert!(said.text.starts_with("cannot read the log: "), "{}", said.text);
}
