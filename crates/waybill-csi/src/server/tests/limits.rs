//! How often a driver may be asked, and how many times at once.

use std::num::NonZeroU32;

use super::*;

/// CSI-48
#[tokio::test]
async fn a_greedy_namespace_is_refused_and_others_are_not_csi_48() {
    let number = |number| NonZeroU32::new(number).unwrap();
    let rate = Rate { per_second: number(1), burst: number(2) };
    let Served { server, node, dir: _dir } =
        serve(Counting::default(), |config, _| config.rate = Some(rate)).await;
    for _ in 0..2 {
        values(&node, request(ALL, &["a"])).await.unwrap();
    }
    let refused = values(&node, request(ALL, &["a"])).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let mut other = request(ALL, &["a"]);
    other.pod_context.insert("namespace".to_owned(), "bank".to_owned());
    values(&node, other).await.unwrap();
    server.stop().await;
}

/// CSI-07, OP-30: what a driver advertises holds also for callers that do not listen.
#[tokio::test]
async fn one_call_more_than_a_driver_takes_is_refused_for_a_moment_csi_07() {
    let gate = Arc::new(Semaphore::new(0));
    let driver =
        Counting { gate: Some(Arc::clone(&gate)), max_in_flight: Some(2), ..Counting::default() };
    let calls = Arc::clone(&driver.calls);
    let Served { server, node, dir: _dir } = serve(driver, |_, _| {}).await;
    let ask = || values(&node, request(ALL, &["a"]));
    let third = async {
        while calls.load(Ordering::SeqCst) < 2 {
            tokio::task::yield_now().await;
        }
        let refused = ask().await.unwrap_err();
        gate.add_permits(3);
        refused
    };
    let (first, second, refused) = tokio::join!(ask(), ask(), third);
    assert!(first.is_ok() && second.is_ok());
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let text = "the driver answers 2 calls at the same time, and no more; try again in a moment";
    assert_eq!(refused.message(), text);
    server.stop().await;
}

/// CSI-07
#[tokio::test]
async fn a_caller_that_hangs_up_leaves_its_place_to_others_csi_07() {
    let gate = Arc::new(Semaphore::new(0));
    let driver = Counting { gate: Some(gate), max_in_flight: Some(1), ..Counting::default() };
    let calls = Arc::clone(&driver.calls);
    let Served { server, node, dir: _dir } = serve(driver, |_, _| {}).await;
    let begun = async |number: usize| {
        while calls.load(Ordering::SeqCst) < number {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        found = values(&node, request(ALL, &["a"])) => panic!("{found:?}"),
        () = begun(1) => {}
    }
    // The driver hears of it in its own time.
    loop {
        tokio::select! {
            found = values(&node, request(ALL, &["a"])) => {
                assert_eq!(found.unwrap_err().code(), Code::ResourceExhausted);
            }
            () = begun(2) => break,
        }
    }
    drop(server);
}
