//! Says that a test did nothing, where people and CI see it.

use std::{env, fs, io::Write};

/// Names the file to which skipped tests add a line; `cargo xtask test` sets it and reads the file.
const FILE: &str = "WAYBILL_SKIPPED";

/// Says that a test is skipped for want of `tool`, and what to do about it.
pub fn skip(tool: &str, remedy: &str) {
    println!("SKIPPED: no {tool}; {remedy}");
    let Some(file) = env::var_os(FILE) else { return };
    let mut file = fs::File::options()
        .create(true)
        .append(true)
        .open(&file)
        .unwrap_or_else(|error| panic!("{FILE} cannot be opened: {error}"));
    // In one call, because other tests add lines at the same time.
    file.write_all(format!("{tool}\n").as_bytes())
        .unwrap_or_else(|error| panic!("{FILE} cannot be written: {error}"));
}
