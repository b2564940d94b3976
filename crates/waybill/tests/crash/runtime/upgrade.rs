//! The runtime is replaced by another version of it and back, again and again and under load: each takes over what the other
//! made, containers of both run on, and what either began is brought to its end (D15, ADR 0044).
//!
//! `WAYBILL_OLD_BIN` names the other version; `cargo xtask upgrade` builds one and runs this.

use std::{fs, future::pending, time::Duration};

use futures_util::{SinkExt, StreamExt};
use tokio::{
    net::TcpStream,
    time::{sleep, timeout},
};
use tokio_tungstenite::{
    client_async,
    tungstenite::{Message, client::IntoClientRequest},
};
use waybill_testkit::{runtime::Setup, skip::skip};

use super::{
    Dice, Ledger, Monitors, Place, Spawners,
    client::{Client, Elder, Script},
    eventually_gone, image, kill_in_the_middle, nothing_is_left, settled, start_workers,
};
use crate::{PATIENCE, rounds};

const VARIABLE: &str = "WAYBILL_OLD_BIN";

/// What xtask calls it; tests that lack it are no fault.
const NAME: &str = "old-waybill";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upgrades_and_downgrades_keep_containers() {
    let (Some(busybox), Some(old)) = (image::busybox(), old_binary()) else { return };
    let dir = tempfile::tempdir().expect("the temporary directory is writable");
    let versions =
        [&old, env!("CARGO_BIN_EXE_waybill")].map(|binary| Setup::new(binary, dir.path()));
    let [old, new] = &versions;
    let cgroup = format!("/waybill-upgrade-{}", std::process::id());

    let runtime = old.start();
    let client = Client::connect(old, &cgroup).await;
    client.import(busybox).await;
    let first = client.start_elder("elder-old", Script::Listener).await;
    drop(runtime);
    let mut runtime = new.start();
    let client = Client::connect(new, &cgroup).await;
    let elders = [first, client.start_elder("elder-new", Script::Listener).await];
    let place = Place::of(new, &cgroup).without_descriptors();
    let before = settled(&place).await;

    for round in 0..rounds() {
        let (running, next) = if round % 2 == 0 { (new, old) } else { (old, new) };
        let dice = Dice::new(round);
        let ledger = Ledger::new(&Monitors::new(running, ""), &Spawners::new(running));
        let workers = start_workers(running, &cgroup, round, &ledger).await;
        kill_in_the_middle(running, runtime, workers, dice, pending(), &ledger).await;
        runtime = next.start();
        let client = Client::connect(next, &cgroup).await;
        for elder in &elders {
            client.check_elder(elder).await;
            type_and_read(&client, elder, round).await;
        }
        ledger.settle(&client).await;
        client.remove_sandboxes_but(&elders.each_ref().map(|it| it.sandbox.as_str())).await;
        nothing_is_left(next, &place, &before, round).await;
    }
    let client = Client::connect(new, &cgroup).await;
    client.remove_sandboxes_but(&[]).await;
    drop(runtime);
    eventually_gone(new, &place).await;
    println!("{} upgrades and downgrades", rounds());
}

#[expect(clippy::disallowed_methods, reason = "another version is given from outside")]
fn old_binary() -> Option<String> {
    let Ok(binary) = std::env::var(VARIABLE) else {
        skip(NAME, &format!("run `cargo xtask upgrade`, or name one with {VARIABLE}"));
        return None;
    };
    assert!(fs::metadata(&binary).is_ok_and(|it| it.is_file()), "{VARIABLE} names no file");
    Some(binary)
}

/// What is typed into the container is done, comes back, and is in its log with all that was before.
async fn type_and_read(client: &Client, elder: &Elder, round: usize) {
    let url = client.attach(&elder.id).await.replace("http://", "ws://");
    let mut request = url.into_client_request().expect("a good address");
    let protocol = "v5.channel.k8s.io".parse().expect("a good header");
    request.headers_mut().insert("sec-websocket-protocol", protocol);
    let address = request.uri().authority().expect("an address").to_string();
    let stream = TcpStream::connect(address).await.expect("the runtime takes streams");
    let (mut socket, _) = client_async(request, stream).await.expect("the runtime takes streams");
    let typed = format!("\0echo round $(({round}+1000))\n").into_bytes();
    socket.send(Message::Binary(typed.into())).await.expect("the container listens");
    let expected = format!("round {}", round + 1000);
    let heard = async {
        let mut text = String::new();
        while !text.contains(&expected) {
            match socket.next().await {
                Some(Ok(Message::Binary(bytes))) => text.push_str(&String::from_utf8_lossy(&bytes)),
                Some(Ok(_)) => {}
                end => panic!("{end:?} after {text:?}"),
            }
        }
    };
    timeout(PATIENCE, heard).await.expect("the container answers");
    let logged = async {
        loop {
            let log = fs::read_to_string(&elder.log).unwrap_or_default();
            if (0..=round).all(|it| log.contains(&format!("round {}", it + 1000))) {
                return;
            }
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, logged).await.expect("the log has all rounds");
}
