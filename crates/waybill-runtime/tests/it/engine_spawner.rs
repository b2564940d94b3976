//! The spawner is killed: it is replaced, and nobody waits for what it was doing.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

use crate::lab::{Lab, eventually};

/// The spawner that this test process started.
fn spawner() -> Option<Pid> {
    let own = std::process::id().to_string();
    let pids = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let dead = stat.contains(") Z ") || stat.contains(") X ");
        stat.contains("(waybill-spawner) ")
            && !dead
            && stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.split(' ').nth(1) == Some(&own))
    })
    .find_map(Pid::from_raw)
}

async fn kill_spawner() {
    let mut found = None;
    eventually("there is a spawner", || {
        found = spawner();
        found.is_some()
    })
    .await;
    kill_process(found.unwrap(), Signal::KILL).unwrap();
}

/// A fork copies what a process wrote to its memory; what the loader writes into our program is over a megabyte (ADR 0079).
#[tokio::test(flavor = "multi_thread")]
async fn what_the_loader_wrote_is_no_memory_of_each_monitor() {
    let Some(lab) = Lab::open().await else { return };
    lab.run("box").await;
    let pid = spawner().unwrap().as_raw_nonzero();
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let shared: Vec<&str> = maps.lines().filter(|line| line.contains("/memfd:loaded")).collect();
    assert!(matches!(shared.as_slice(), [one] if one.contains(" r--p ")), "{maps}");
    lab.kill_and_delete("box").await;
    lab.close().await;
}

/// Issue: after the spawner was killed, no pod started any more.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_spawner_is_replaced_before_the_next_container() {
    let Some(lab) = Lab::open().await else { return };
    lab.run("before").await;
    let end_of_spawner = async || {
        kill_spawner().await;
        eventually("the spawner is dead", || spawner().is_none()).await;
    };
    end_of_spawner().await;
    lab.run("after").await;
    end_of_spawner().await;
    lab.engine().check().await.unwrap();
    assert!(spawner().is_some(), "whoever asks whether all is well has it replaced");
    for id in ["before", "after"] {
        assert_eq!(lab.sh(id, "echo alive").await.0, "alive\n");
        lab.kill_and_delete(id).await;
    }
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_that_are_made_while_the_spawner_dies_are_made_or_refused() {
    let Some(lab) = Lab::open().await else { return };
    for round in 0..8 {
        let ids: Vec<String> = (0..4).map(|at| format!("box-{round}-{at}")).collect();
        let make = async |id: &String| {
            lab.engine().create(id, lab.container(id, &["/bin/sleep", "1000"])).await
        };
        let [a, b, c, d] = &ids[..] else { panic!() };
        let (a, b, c, d, ()) = tokio::join!(make(a), make(b), make(c), make(d), kill_spawner());
        for (id, made) in ids.iter().zip([a, b, c, d]) {
            match made {
                Ok(()) => {}
                Err(error) => {
                    assert!(error.to_string().contains("try again"), "{error}");
                    make(id).await.unwrap();
                }
            }
            lab.engine().start(id).await.unwrap();
            lab.kill_and_delete(id).await;
        }
    }
    lab.close().await;
}
