//! Bearer tokens: headers, and claims that are signed before they are read.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| waybill_apiserver::fuzzing::tokens(text));
