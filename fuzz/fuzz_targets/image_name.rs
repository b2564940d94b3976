//! Names of images.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| waybill_runtime::image::fuzzing::name(text));
