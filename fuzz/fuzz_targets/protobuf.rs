//! Bodies in protobuf, as typed clients send them.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| waybill_apiserver::fuzzing::protobuf(body));
