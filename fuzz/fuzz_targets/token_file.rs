//! Token files, which are files of administrators.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|content: &[u8]| waybill_apiserver::fuzzing::token_file(content));
