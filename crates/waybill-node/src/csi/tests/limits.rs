//! How much, how long and how many at once.

use futures_util::{FutureExt, future::join_all};
use tokio::sync::Semaphore;
use waybill_proto::csi::EnvVarInjection;

use super::*;
use crate::pod::PodOrigin;

fn value(bytes: usize) -> Act {
    Act::Answer(vec![("A", vec![b'x'; bytes], "")])
}

/// CSI-33, CSI-34, CSI-40
#[tokio::test]
async fn one_byte_more_than_the_limit_is_too_many_csi_33_csi_34_csi_40() {
    for (hints, parameters, limit) in [
        (EnvVarInjection::default(), json!({}), 16384),
        (EnvVarInjection::default(), json!({"envInjection.maxValueBytes": "100"}), 100),
        (
            EnvVarInjection { max_value_bytes: 200, ..EnvVarInjection::default() },
            json!({"envInjection.maxValueBytes": "100"}),
            200,
        ),
    ] {
        let fixture = Fixture::new([value(limit), value(limit + 1)]).await;
        fixture.driver.set_hints(hints);
        fixture.cluster.set_class("vault", parameters);
        let resolved = fixture.resolve(env(&[("A", "k")])).await.unwrap();
        assert_eq!(resolved.environment.get(b"A").unwrap().value().len(), limit);
        assert_eq!(
            fixture.refusal().await,
            format!("the value of \"A\" has {} bytes, and at most {limit} are allowed", limit + 1)
        );
        fixture.check_metric(&format!(
            "kubelet_csi_env_injection_errors_total{{driver=\"{DRIVER}\",error_type=\"oversize\"}} 1"
        ));
    }
}

/// CSI-40, OP-44: the request counts, too, and is not sent.
#[tokio::test]
async fn a_request_that_is_too_large_is_not_sent_csi_40() {
    let fixture = Fixture::new([Act::Echo]).await;
    let told = fixture.resolve(env(&[("A", &"k".repeat(65536))])).await.unwrap_err().to_string();
    assert!(told.contains("the request to the CSI driver has 65"), "{told}");
    assert_eq!(fixture.driver.requests(), []);
}

/// CSI-34, CSI-36: the text has the time that really held.
#[tokio::test]
async fn the_time_for_a_call_is_the_drivers_word_first_csi_34_csi_36() {
    let fixture = Fixture::new([Act::Hang]).await;
    fixture.cluster.set_class("vault", json!({"envInjection.rpcTimeout": "30ms"}));
    assert_eq!(fixture.refusal().await, "CSI env injection timeout after 30ms");
    let nanos = 20_000_000;
    fixture.driver.set_hints(EnvVarInjection {
        rpc_timeout: Some(prost_types::Duration { seconds: 0, nanos }),
        ..EnvVarInjection::default()
    });
    fixture.driver.restart();
    assert_eq!(fixture.refusal().await, "CSI env injection timeout after 20ms");
}

/// CSI-42, CSI-55, OP-37
#[tokio::test]
async fn calls_beyond_the_limit_wait_and_are_in_the_gauge_csi_42_csi_55() {
    let gate = Arc::new(Semaphore::new(0));
    let fixture = Fixture::new([Act::Gate(Arc::clone(&gate))]).await;
    fixture.driver.set_hints(EnvVarInjection { max_in_flight: 4, ..EnvVarInjection::default() });
    let container = env(&[("A", "k")]);
    let starts = join_all((0..5).map(|_| fixture.resolve(container.clone())));
    let gauge = |number: u32| {
        let line =
            format!("kubelet_csi_env_injection_inflight_requests{{driver=\"{DRIVER}\"}} {number}");
        fixture.metrics().lines().any(|found| found == line)
    };
    let watching = async {
        while !gauge(5) || fixture.driver.count("NodeGetEnvVars") < 2 {
            tokio::task::yield_now().await;
        }
        assert_eq!(fixture.driver.count("NodeGetEnvVars"), 2, "half is left for other namespaces");
        gate.add_permits(5);
    };
    let (outcomes, ()) = tokio::join!(starts, watching);
    assert!(outcomes.iter().all(Result::is_ok));
    assert!(gauge(0));
}

/// OP-37, CSI-53
#[tokio::test]
async fn who_waits_too_long_is_throttled_csi_53() {
    let gate = Arc::new(Semaphore::new(0));
    let fixture = Fixture::new([Act::Gate(Arc::clone(&gate))]).await;
    fixture.driver.set_hints(EnvVarInjection { max_in_flight: 1, ..EnvVarInjection::default() });
    let class = |timeout: &str| json!({"envInjection.rpcTimeout": timeout});
    fixture.cluster.set_class("patient", class("60s"));
    fixture.cluster.set_class("vault", class("30ms"));
    let first = fixture.resolve(json!({"env": [variable("A", "patient", "k")]}));
    let second = async {
        while fixture.driver.count("NodeGetEnvVars") == 0 {
            tokio::task::yield_now().await;
        }
        let told = fixture.refusal().await;
        gate.add_permits(1);
        told
    };
    let (first, told) = tokio::join!(first, second);
    assert!(first.is_ok());
    assert_eq!(
        told,
        format!(
            "CSI env injection throttled: at most 1 calls to CSI driver \"{DRIVER}\" at a time, \
             shared between namespaces, and no place was free for \"shop\" in 30ms"
        )
    );
    fixture.check_metric(&format!(
        "kubelet_csi_env_injection_errors_total{{driver=\"{DRIVER}\",error_type=\"throttled\"}} 1"
    ));
}

/// CSI-42: calls of one namespace that hang take no place from another.
#[tokio::test]
async fn a_namespace_whose_calls_hang_holds_up_no_other_csi_42() {
    let fixture = Fixture::new([Act::Hang, Act::Hang, Act::Echo]).await;
    let hints = EnvVarInjection { max_in_flight: 4, ..EnvVarInjection::default() };
    fixture.driver.set_hints(hints);
    let mut container = env(&[("A", "k")]);
    container["name"] = json!("app");
    let noisy = json!({
        "metadata": {"name": "web", "namespace": "noisy", "uid": "noisy-uid"},
        "spec": {"containers": [container]},
    });
    let noisy = Pod::from_value(noisy, PodOrigin::ApiServer).unwrap();
    let mut hanging = Box::pin(join_all((0..10).map(|_| fixture.resolve_pod(&noisy))));
    while fixture.driver.count("NodeGetEnvVars") < 2 {
        assert!((&mut hanging).now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    let start = fixture.resolve(env(&[("A", "k")]));
    let start = tokio::select! {
        start = start => start,
        _ = hanging => panic!("calls that hang came to an end"),
    };
    assert_eq!(pairs(&start.unwrap()), ["A=k"]);
}

/// CSI-34, CSI-42: what a class says of itself is about its own calls.
#[tokio::test]
async fn the_limit_of_a_class_counts_its_own_calls_csi_34_csi_42() {
    let acts = [Act::Hang, Act::Hang, Act::Echo, Act::Hang, Act::Echo];
    let fixture = Fixture::new(acts).await;
    let class = |limit: &str| json!({"envInjection.maxInFlight": limit});
    fixture.cluster.set_class("busy", class("1000"));
    fixture.cluster.set_class("narrow", class("1"));
    let of_class = |class: &str| json!({"env": [variable("A", class, "k")]});
    let until = async |number: usize, hanging: &mut (dyn Future<Output = ()> + Unpin)| {
        while fixture.driver.count("NodeGetEnvVars") < number {
            assert!(hanging.now_or_never().is_none());
            tokio::task::yield_now().await;
        }
    };
    let busy = (0..2).map(|_| fixture.resolve(of_class("busy")));
    let mut busy = Box::pin(join_all(busy).map(drop));
    until(2, &mut busy).await;
    // Calls of another class take no place of this one, nor the other way round.
    assert!(fixture.resolve(of_class("narrow")).await.is_ok());
    let mut narrow = Box::pin(fixture.resolve(of_class("narrow")).map(drop));
    until(4, &mut narrow).await;
    assert!(fixture.resolve(env(&[("A", "k")])).await.is_ok());
}
