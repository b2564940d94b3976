//! The Python client `kubernetes`; what it does is in `tests/python/client.py`.

use std::{path::Path, process::Command};

use waybill_testkit::{
    apiserver::{ADMIN_TOKEN, Setup},
    program::PYTHON,
};

#[test]
fn the_python_client_works() {
    let Some(python) = PYTHON.find() else { return };
    let dir = tempfile::tempdir().expect("the temporary directory is writable");
    let setup = Setup::new(env!("CARGO_BIN_EXE_waybill"), dir.path());
    // A second life, so that the versions of the first are gone for watches.
    drop(setup.start());
    let server = setup.start();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/client.py");
    let output = Command::new(python)
        .arg(script)
        .arg("--verbose")
        .env_clear()
        .env("WAYBILL_URL", format!("https://{}", server.address()))
        .env("WAYBILL_CA", server.state().join("ca.crt"))
        .env("WAYBILL_TOKEN", ADMIN_TOKEN)
        .current_dir(dir.path())
        .output()
        .expect("python starts");
    assert!(
        output.status.success(),
        "{}{}\nthe server's log:\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
        setup.log()
    );
}
