//! Bodies in YAML.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| waybill_apiserver::fuzzing::yaml(body));
