//! The wrapper around OCI runtimes, built without shared libraries as nodes get it.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

/// Where `waybill-oci` is, built when it is not up to date.
///
/// # Panics
///
/// If it cannot be built.
pub fn wrapper() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(build)
}

fn build() -> PathBuf {
    if let Some(named) = env::var_os("WAYBILL_OCI") {
        return named.into();
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    // A folder of its own: other flags, and the tests' own cargo may hold the lock of the usual one.
    let folder = root.join("target/oci");
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // Named although it is the machine's own, so that the flags are not for macros, too.
    let target = format!("{}-unknown-linux-gnu", env::consts::ARCH);
    let done = Command::new(cargo)
        .args([
            "build",
            "--quiet",
            "--locked",
            "--package",
            "waybill-oci",
            "--target",
            &target,
            "--target-dir",
        ])
        .arg(&folder)
        .current_dir(&root)
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .status();
    assert!(done.is_ok_and(|status| status.success()), "waybill-oci cannot be built");
    folder.join(target).join("debug/waybill-oci")
}
