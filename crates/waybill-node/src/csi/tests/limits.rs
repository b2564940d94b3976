//! How much, how long and how many at once.

use futures_util::future::join_all;
use tokio::sync::Semaphore;
use waybill_proto::csi::EnvVarInjection;

use super::*;

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
    fixture.driver.set_hints(EnvVarInjection { max_in_flight: 2, ..EnvVarInjection::default() });
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
        assert_eq!(fixture.driver.count("NodeGetEnvVars"), 2);
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
    let class = |timeout: &str| json!({"envInjection.maxInFlight": "1", "envInjection.rpcTimeout": timeout});
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
            "CSI env injection throttled: 1 calls to CSI driver \"{DRIVER}\" are under way, and \
             none ended in 30ms"
        )
    );
    fixture.check_metric(&format!(
        "kubelet_csi_env_injection_errors_total{{driver=\"{DRIVER}\",error_type=\"throttled\"}} 1"
    ));
}
