//! Patches of each kind, for an object of any shape.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| waybill_apiserver::fuzzing::patch(data));
