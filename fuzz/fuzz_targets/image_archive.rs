//! Archives of images, imported into a store of their own.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use waybill_runtime::image::{Images, fuzzing};

static STORE: LazyLock<(tempfile::TempDir, Images)> = LazyLock::new(|| {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let images = fuzzing::store(directory.path());
    (directory, images)
});

fuzz_target!(|data: &[u8]| fuzzing::archive(&STORE.1, data));
