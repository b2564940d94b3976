//! Queries of exec requests, as API server and node agent get them.

#![no_main]

use libfuzzer_sys::fuzz_target;
use waybill_api::exec::{EnvParams, ExecEnvRules, ExecVar, PodExecOptions, validate};
use waybill_core::env::name::NameRules;

fuzz_target!(|query: &str| {
    let _ = PodExecOptions::from_kubelet_query(query, EnvParams::Ignored);
    let _ = PodExecOptions::from_kubelet_query(query, EnvParams::Read);
    let Ok(options) = PodExecOptions::from_query(query) else { return };
    let refused = validate(&options, ExecEnvRules::Disabled);
    assert_eq!(refused.is_empty(), options.env.is_empty());

    let errors = validate(&options, ExecEnvRules::Enabled { names: NameRules::Relaxed });
    if !errors.is_empty() {
        return;
    }
    assert_eq!(PodExecOptions::from_query(&options.to_query()).as_ref(), Ok(&options));
    let sent = options.to_kubelet_query(&[ExecVar::audit_id(None)]);
    let received = PodExecOptions::from_kubelet_query(&sent, EnvParams::Read)
        .expect("what we send, a node can read");
    let (own, caller) = received.env.split_last().expect("the audit id is there");
    assert_eq!(own, &ExecVar::audit_id(None));
    assert_eq!(caller, options.env);
    assert_eq!(received.command, options.command);
});
