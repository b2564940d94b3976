//! Audit policies, which are files of administrators.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| waybill_apiserver::fuzzing::audit_policy(text));
