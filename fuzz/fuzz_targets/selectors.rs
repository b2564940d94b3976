//! Label and field selectors of lists and watches.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| waybill_apiserver::fuzzing::selectors(text));
