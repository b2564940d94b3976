//! Who gets in, and who does not.

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::Arc,
    time::Duration,
};

use waybill_testkit::chromium::Chromium;

use super::{
    incident::night,
    served::{Served, Visit},
};

/// Sends a request as it is written, and reads the answer to its end.
fn send(served: &Served, request: &str) -> String {
    let mut stream = TcpStream::connect(served.server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    // Whoever refuses may hang up before everything was read.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn get(served: &Served, path: &str, headers: &str) -> String {
    let host = served.server.address();
    send(
        served,
        &format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{headers}\r\n"),
    )
}

fn post_token(served: &Served, token: &str, headers: &str) -> String {
    let (host, length) = (served.server.address(), token.len());
    let head = format!(
        "POST /api/open HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n"
    );
    send(served, &(head + token))
}

fn token(served: &Served) -> String {
    let link = served.server.new_link("").unwrap();
    link.rsplit_once('#').unwrap().1.to_owned()
}

/// The cookie and the key of somebody who came in.
fn enter(served: &Served) -> (String, String) {
    let answer = post_token(served, &token(served), "");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let cookie = answer.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"), "{cookie}");
    let key = answer.rsplit_once("\r\n").unwrap().1;
    (cookie.split(';').next().unwrap().to_owned(), key.to_owned())
}

#[track_caller]
fn check_status(answer: &str, status: u16) {
    assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
}

#[test]
fn a_link_works_once() {
    let served = Served::start(night());
    let token = token(&served);
    check_status(&post_token(&served, &token, ""), 200);
    check_status(&post_token(&served, &token, ""), 401);
    check_status(&post_token(&served, &"x".repeat(43), ""), 401);
    check_status(&post_token(&served, "", ""), 401);
    check_status(&post_token(&served, &"x".repeat(300), ""), 400);
}

#[test]
fn nothing_about_sessions_is_told_without_both_cookie_and_key() {
    let served = Served::start(night());
    let (cookie, key) = enter(&served);
    let paths = [
        "/api/sessions",
        "/api/facets",
        "/api/sessions/exec-7f21",
        "/api/sessions/exec-7f21/processes",
        "/api/changes",
        "/api/export?format=json",
    ];
    for path in paths {
        check_status(&get(&served, path, ""), 401);
        check_status(&get(&served, path, &format!("cookie: {cookie}\r\n")), 401);
        check_status(&get(&served, path, &format!("x-waybill-key: {key}\r\n")), 401);
    }
    let both = format!("cookie: other=1; {cookie}\r\nx-waybill-key: {key}\r\n");
    let told = get(&served, "/api/sessions", &both);
    check_status(&told, 200);
    assert!(told.contains("anna"));
}

#[test]
fn another_name_for_this_machine_is_refused() {
    let served = Served::start(night());
    let (cookie, key) = enter(&served);
    let both = format!("connection: close\r\ncookie: {cookie}\r\nx-waybill-key: {key}\r\n");
    let port = served.server.address().port();
    for host in [
        "evil.example".to_owned(),
        format!("evil.example:{port}"),
        format!("127.0.0.1.evil.example:{port}"),
        format!("10.0.0.1:{port}"),
        String::new(),
    ] {
        for path in ["/", "/main.js", "/api/sessions"] {
            check_status(
                &send(&served, &format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n{both}\r\n")),
                421,
            );
        }
    }
    let own = format!("127.0.0.1:{port}");
    check_status(
        &send(
            &served,
            &format!("GET / HTTP/1.1\r\nhost: {own}\r\nhost: evil.example\r\n{both}\r\n"),
        ),
        421,
    );
    check_status(
        &send(&served, &format!("GET http://evil.example/ HTTP/1.1\r\nhost: {own}\r\n{both}\r\n")),
        421,
    );
    check_status(&send(&served, &format!("GET / HTTP/1.1\r\n{both}\r\n")), 421);
    // A tunnel has another port at its other end.
    check_status(
        &send(
            &served,
            &format!("GET /api/sessions HTTP/1.1\r\nhost: localhost:9000\r\n{both}\r\n"),
        ),
        200,
    );
}

#[test]
fn pages_of_others_cannot_ask() {
    let served = Served::start(night());
    let (cookie, key) = enter(&served);
    let both = format!("cookie: {cookie}\r\nx-waybill-key: {key}\r\n");
    for header in [
        "origin: http://evil.example",
        "origin: null",
        "origin: http://127.0.0.1:1",
        "sec-fetch-site: cross-site",
        "sec-fetch-site: same-site",
    ] {
        check_status(&get(&served, "/api/sessions", &format!("{both}{header}\r\n")), 403);
        check_status(&post_token(&served, &token(&served), &format!("{header}\r\n")), 403);
    }
    check_status(
        &get(
            &served,
            "/api/sessions",
            &format!("{both}sec-fetch-site: same-origin\r\norigin: {}\r\n", served.origin()),
        ),
        200,
    );
    // Nobody is told that others may read.
    assert!(!get(&served, "/api/sessions", &both).to_lowercase().contains("access-control"));
}

#[test]
fn every_answer_has_the_headers_that_guard_it() {
    let served = Served::start(night());
    let answers = [
        get(&served, "/", ""),
        get(&served, "/text.js", ""),
        get(&served, "/nothing", ""),
        get(&served, "/api/sessions", ""),
        post_token(&served, "x", ""),
    ];
    for answer in answers {
        let head = answer.split("\r\n\r\n").next().unwrap();
        for header in [
            "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "x-frame-options: DENY",
            "cache-control: no-store",
            "cross-origin-opener-policy: same-origin",
            "cross-origin-resource-policy: same-origin",
        ] {
            assert!(head.contains(header), "{header}: {head}");
        }
    }
    check_status(
        &send(&served, "DELETE / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"),
        405,
    );
    check_status(&get(&served, &format!("/{}", "x".repeat(40_000)), ""), 431);
}

/// Anybody on this machine may connect, and keep quiet.
#[test]
fn connections_that_say_nothing_shut_nobody_out() {
    let served = Served::start(night());
    let idle: Vec<_> =
        (0..200).map(|_| TcpStream::connect(served.server.address()).unwrap()).collect();
    check_status(&get(&served, "/", ""), 200);
    drop(idle);
}

#[test]
fn the_end_waits_for_nobody() {
    let mut served = Served::start(night());
    let (cookie, key) = enter(&served);
    let mut follower = TcpStream::connect(served.server.address()).unwrap();
    let host = served.server.address();
    write!(follower, "GET /api/changes?after=0 HTTP/1.1\r\nhost: {host}\r\ncookie: {cookie}\r\nx-waybill-key: {key}\r\n\r\n").unwrap();
    let mut byte = [0];
    follower.read_exact(&mut byte).unwrap();
    let _silent = TcpStream::connect(served.server.address()).unwrap();
    served.stop();
    let mut rest = Vec::new();
    follower.read_to_end(&mut rest).unwrap();
    assert!(String::from_utf8_lossy(&rest).contains("text/event-stream"));
}

#[test]
fn a_used_link_and_a_finding_without_one_lead_to_the_door_and_a_new_link_opens_it() {
    let Some(visit) = Visit::of(night(), "") else { return };
    let tab = &visit.tab;
    assert!(!tab.text("location.href").contains('#'), "the token is still in the address");
    // Somebody else, who was sent a finding.
    let Some(other) = Chromium::start().map(Arc::new) else { return };
    let colleague = other.tab(1280, 800);
    colleague.go(&format!("{}/?session=exec-7f21", visit.served.origin()));
    colleague.wait_until("!document.getElementById('gate').hidden && document.querySelector('#gate h2').textContent.includes('needs a link')");
    assert!(!colleague.text("document.documentElement.outerHTML").contains("anna"));
    let used = visit.served.server.new_link("").unwrap();
    colleague.click("#gate input");
    colleague.type_text(&used);
    colleague.press("Enter");
    colleague.wait_until("document.querySelector('#detail h2')?.textContent.includes('anna')");
    assert!(colleague.text("location.search").contains("session=exec-7f21"));
    // The same link again.
    let third = other.tab(1280, 800);
    third.go(&used);
    third.wait_until("!document.getElementById('gate').hidden");
    assert!(third.text("document.querySelector('#gate h2').textContent").contains("used already"));
    // What a script of the page could read is not enough.
    assert_eq!(tab.text("document.cookie"), "");
    visit.check_clean();
}
