//! Drivers that are slow, wrong, gone or back again.

use std::{os::unix::net::UnixListener, time::Duration};

use futures_util::FutureExt;
use tonic::Code;

use super::*;

fn timeout(millis: u64) -> impl FnOnce(CsiConfig) -> CsiConfig {
    move |config| CsiConfig { rpc_timeout: Duration::from_millis(millis), ..config }
}

impl Fixture {
    #[track_caller]
    fn check_counted(&self, error_type: &str) {
        self.check_metric(&format!(
            "kubelet_csi_env_injection_errors_total{{driver=\"{DRIVER}\",\
             error_type=\"{error_type}\"}} 1"
        ));
        self.check_metric(&format!(
            "kubelet_csi_env_injection_requests_total{{driver=\"{DRIVER}\",\
             provider_class=\"vault\",result=\"failure\"}} 1"
        ));
    }
}

/// CSI-71, CSI-36, CSI-53, CSI-63
#[tokio::test]
async fn a_driver_that_hangs_is_asked_twice_csi_36_csi_53_csi_63_csi_71() {
    let mut fixture = Fixture::with([Act::Hang], timeout(50)).await;
    assert_eq!(fixture.refusal().await, "CSI env injection timeout after 50ms");
    assert_eq!(fixture.driver.count("NodeGetEnvVars"), 2);
    fixture.check_counted("timeout");
    fixture.check_metric(&format!(
        "kubelet_csi_env_injection_duration_seconds_count{{driver=\"{DRIVER}\",\
         provider_class=\"vault\"}} 2"
    ));
    let (reason, message) = fixture.cluster.events(1).await.remove(0);
    assert_eq!(reason, "EnvVarInjectionFailed");
    assert!(message.contains("timeout") && message.contains("shop/web"), "{message}");
}

/// CSI-36, CSI-37
#[tokio::test]
async fn what_works_the_second_time_is_good_csi_36_csi_37() {
    for first in [
        Act::Fail(Code::Internal, "backend"),
        Act::Fail(Code::Unavailable, "not yet"),
        Act::Fail(Code::Unknown, "?"),
        Act::Fail(Code::Aborted, "?"),
        Act::Fail(Code::ResourceExhausted, "slow down"),
    ] {
        let fixture = Fixture::new([first, Act::Echo]).await;
        assert_eq!(pairs(&fixture.resolve(env(&[("A", "k")])).await.unwrap()), ["A=k"]);
        assert_eq!(fixture.driver.count("NodeGetEnvVars"), 2);
    }
}

/// CSI-35, CSI-41
#[tokio::test]
async fn there_is_one_call_more_than_retries_csi_35_csi_41() {
    for retries in [0, 1, 4] {
        let failing = [Act::Fail(Code::Internal, "no")];
        let change = |config| CsiConfig { rpc_retries: retries, ..config };
        let fixture = Fixture::with(failing, change).await;
        let told = fixture.refusal().await;
        assert_eq!(
            told,
            format!(
                "NodeGetEnvVars RPC failed for driver \"{DRIVER}\": rpc error: code = Internal desc \
                 = no"
            )
        );
        assert_eq!(fixture.driver.count("NodeGetEnvVars"), retries as usize + 1);
        fixture.check_counted("backend_error");
    }
}

/// CSI-38, CSI-39
#[tokio::test]
async fn terminal_codes_are_not_tried_again_csi_38_csi_39() {
    for (code, word) in [
        (Code::NotFound, "not_found"),
        (Code::InvalidArgument, "invalid_argument"),
        (Code::PermissionDenied, "unauthorized"),
        (Code::Unauthenticated, "unauthorized"),
        (Code::DataLoss, "rpc_error"),
    ] {
        let fixture = Fixture::new([Act::Fail(code, "Key 'x' is 'y'")]).await;
        let told = fixture.refusal().await;
        assert!(told.ends_with(&format!("code = {code:?} desc = Key 'x' is 'y'")), "{told}");
        assert_eq!(fixture.driver.count("NodeGetEnvVars"), 1, "{code:?}");
        fixture.check_counted(word);
    }
}

/// CSI-36, CSI-43
#[tokio::test]
async fn a_driver_that_dies_fails_what_starts_now_and_nothing_later_csi_36_csi_43() {
    for dies in [Act::Crash, Act::CrashMidReply] {
        let change = |config| CsiConfig { rpc_retries: 0, ..config };
        let fixture = Fixture::with([dies, Act::Echo], change).await;
        let told = fixture.refusal().await;
        let about = format!("NodeGetEnvVars RPC failed for driver \"{DRIVER}\": ");
        assert!(told.starts_with(&about), "{told}");
        fixture.check_counted("driver_unavailable");
        // Nobody listens at the socket, which is still there.
        let told = fixture.refusal().await;
        let socket = fixture.cluster.socket();
        let about = format!("failed to connect to CSI driver at {}", socket.display());
        assert!(told.starts_with(&about), "{told}");
        fixture.driver.restart();
        assert_eq!(pairs(&fixture.resolve(env(&[("A", "k")])).await.unwrap()), ["A=k"]);
    }
}

/// CSI-06: OP-29, CSI-68: what a driver can do is asked again when it was started again.
#[tokio::test]
async fn a_driver_that_was_restarted_between_calls_is_asked_what_it_can_do_csi_06_csi_68() {
    let fixture = Fixture::new([Act::Echo]).await;
    fixture.resolve(env(&[("A", "k")])).await.unwrap();
    fixture.driver.set_capable(false);
    fixture.driver.restart();
    assert_eq!(
        fixture.refusal().await,
        format!("CSI driver \"{DRIVER}\" does not support ENV_VAR_INJECTION capability")
    );
    assert_eq!(fixture.driver.count("NodeGetEnvVars"), 1, "and not asked for variables");
    fixture.check_counted("capability_missing");
    fixture.driver.set_capable(true);
    fixture.driver.restart();
    assert!(fixture.resolve(env(&[("A", "k")])).await.is_ok());
}

/// CSI-26
#[tokio::test]
async fn only_a_socket_at_the_fixed_path_is_dialled_csi_26() {
    let fixture = Fixture::new([Act::Echo]).await;
    fixture.driver.stop();
    let socket = fixture.cluster.socket();
    let about = format!("CSI driver socket not found at {}", socket.display());
    assert_eq!(fixture.refusal().await, about);
    fixture.check_counted("driver_unavailable");
    std::fs::write(&socket, "").unwrap();
    assert_eq!(fixture.refusal().await, format!("{about}: what is there is not a socket"));
    std::fs::remove_file(&socket).unwrap();
    std::fs::create_dir(&socket).unwrap();
    assert_eq!(fixture.refusal().await, format!("{about}: what is there is not a socket"));
}

/// CSI-26: who does not let us in, in time.
#[tokio::test]
async fn a_socket_that_nobody_serves_is_given_up_csi_26() {
    let change =
        |config| CsiConfig { rpc_retries: 0, rpc_timeout: Duration::from_millis(50), ..config };
    let fixture = Fixture::with([Act::Echo], change).await;
    fixture.driver.stop();
    // It accepts connections, as the kernel does for it, and never answers.
    let _silent = UnixListener::bind(fixture.cluster.socket()).unwrap();
    assert_eq!(fixture.refusal().await, "CSI env injection timeout after 50ms");
}

#[tokio::test]
async fn a_driver_of_another_name_gets_no_request() {
    let fixture = Fixture::new([Act::Echo]).await;
    fixture.driver.set_name("evil.csi");
    let told = fixture.refusal().await;
    assert!(told.ends_with(&format!("calls itself \"evil.csi\", and not \"{DRIVER}\"")), "{told}");
    assert_eq!(fixture.driver.requests(), []);
}

/// CSI-05, CSI-31, CSI-71
#[tokio::test]
async fn an_answer_that_is_not_what_was_asked_is_refused_whole_csi_05_csi_31_csi_71() {
    let value = |text: &str| text.as_bytes().to_vec();
    let many = (0..10_000).map(|_| ("A", value("hunter2"), "")).collect();
    for act in [
        Act::Answer(vec![]),
        Act::Answer(many),
        Act::Answer(vec![("B", value("hunter2"), ""), ("A", value("hunter2"), "")]),
        Act::Answer(vec![("A", value("hunter2"), ""), ("B", value("hunter2"), "hunter2")]),
        Act::Answer(vec![("A", value("hunter2"), ""), ("B", value("hunter2\0"), "")]),
        Act::Answer(vec![("A", value("hunter2"), ""), ("B", b"hunter2\xff".to_vec(), "")]),
        Act::Garbage,
    ] {
        let fixture = Fixture::new([act]).await;
        let told = fixture.resolve(env(&[("A", "k"), ("B", "l")])).await.unwrap_err().to_string();
        assert!(told.contains("malformed response from CSI driver"), "{told}");
        assert!(!told.contains("hunter2"), "{told}");
        assert_eq!(fixture.driver.count("NodeGetEnvVars"), 1);
        fixture.check_counted("malformed_response");
    }
}

/// CSI-41: a start that is given up ends the call, its pauses and its place among others.
#[tokio::test]
async fn a_start_that_is_cancelled_asks_nobody_any_more_csi_41() {
    let change = |config| CsiConfig { retry_backoff: Duration::from_secs(3600), ..config };
    let fixture = Fixture::with([Act::Fail(Code::Internal, "no")], change).await;
    let mut start = Box::pin(fixture.resolve(env(&[("A", "k")])));
    while fixture.driver.count("NodeGetEnvVars") == 0 {
        assert!((&mut start).now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    drop(start);
    fixture.check_metric(&format!(
        "kubelet_csi_env_injection_inflight_requests{{driver=\"{DRIVER}\"}} 0"
    ));
    assert_eq!(fixture.driver.count("NodeGetEnvVars"), 1);
}

/// CSI-29, CSI-39, OP-33
#[tokio::test]
async fn optional_variables_may_be_missing_and_denied_ones_not_csi_29_csi_39() {
    let optional = |names: &[&str]| {
        let mut container = env(&names.iter().map(|name| (*name, "k")).collect::<Vec<_>>());
        for entry in container["env"].as_array_mut().unwrap() {
            entry["valueFrom"]["csiSecretRef"]["optional"] = json!(true);
        }
        container
    };
    for act in [Act::Fail(Code::NotFound, "no key"), Act::Fail(Code::Internal, "down"), Act::Hang] {
        let fixture = Fixture::with([act], timeout(50)).await;
        assert_eq!(pairs(&fixture.resolve(optional(&["A", "B"])).await.unwrap()), [""; 0]);
        fixture.check_metric(&format!(
            "kubelet_csi_env_injection_requests_total{{driver=\"{DRIVER}\",\
             provider_class=\"vault\",result=\"partial\"}} 1"
        ));
        assert!(fixture.driver.requests().iter().all(|it| it.queries.iter().all(|it| it.optional)));
        // One that is needed, and nothing is left out.
        let mut mixed = optional(&["A", "B"]);
        mixed["env"][1]["valueFrom"]["csiSecretRef"]["optional"] = json!(false);
        assert!(fixture.resolve(mixed).await.is_err());
    }
    for code in [Code::PermissionDenied, Code::Unauthenticated, Code::InvalidArgument] {
        let fixture = Fixture::new([Act::Fail(code, "no")]).await;
        assert!(fixture.resolve(optional(&["A"])).await.is_err(), "{code:?}");
    }
    let fixture = Fixture::new([Act::Answer(vec![
        ("A", b"a".to_vec(), ""),
        ("B", Vec::new(), "key 'k' not found"),
    ])])
    .await;
    assert_eq!(pairs(&fixture.resolve(optional(&["A", "B"])).await.unwrap()), ["A=a"]);
    let told = fixture.resolve(env(&[("A", "k"), ("B", "k")])).await.unwrap_err().to_string();
    assert!(told.contains("variable \"B\": key 'k' not found"), "{told}");
}
