//! The program that attacks from inside a container, built without shared libraries so that any image can hold it.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

/// Names a built one, for machines that cannot build.
const GIVEN: &str = "WAYBILL_HOSTILE";

/// Where `waybill-hostile` is, built when it is not up to date.
///
/// # Panics
///
/// If it cannot be built.
pub fn hostile() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| env::var_os(GIVEN).map_or_else(build, PathBuf::from))
}

fn build() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    // A folder of its own: other flags, and the tests' own cargo may hold the lock of the usual one.
    let target = root.join("target/hostile");
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let done = Command::new(cargo)
        .args(["build", "--quiet", "--locked", "--package", "waybill-hostile", "--target-dir"])
        .arg(&target)
        .current_dir(&root)
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .status();
    assert!(done.is_ok_and(|status| status.success()), "waybill-hostile cannot be built");
    target.join("debug/waybill-hostile")
}
