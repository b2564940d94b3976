//! A stranger who sends more than the audit log can hold.

use std::fs;

use waybill_testkit::apiserver::Setup;
use waybill_trace::AuditLog;

use crate::client::Client;

/// The hole: 19,200 requests without a token, each with a long URI, pushed the record of a user's session
/// out of the log in 16 seconds. Here the log holds 3 MB, and strangers send 24 MB.
#[tokio::test]
async fn strangers_cannot_push_the_record_of_a_session_out_of_the_audit_log() {
    let dir = tempfile::tempdir().expect("the temporary directory is writable");
    let setup = Setup::new(env!("CARGO_BIN_EXE_waybill"), dir.path());
    let setup = setup.flag("--audit-log-maxsize=1").flag("--audit-log-maxbackup=2");
    let server = setup.start();
    let mut client = Client::connect(&server).await.expect("the server takes connections");
    let exec = "/api/v1/namespaces/default/pods/web/exec?command=id";
    let (code, _) = client.send("GET", exec, "").await.expect("the server answers");
    assert_eq!(code, 404, "there is no such pod, and the request is on record");

    let long = "x".repeat(8_000);
    for number in 0..3_000 {
        let path = format!("/api/v1/namespaces/default/pods/p{number}/exec?command={long}");
        let code = client.as_nobody(&path).await.expect("the server answers");
        assert_eq!(code, 401);
    }

    let mut log = AuditLog::at(&server.state().join("audit/audit.log"));
    log.refresh().expect("the log can be read");
    let found = log.requests().values().any(|it| it.pod == "web" && it.caller.user == "admin");
    assert!(found, "the record of the session is gone");
    // What strangers caused is on record too, cut, up to a limit.
    let entries = fs::read_dir(server.state().join("audit")).expect("the directory is there");
    let size = |entry: fs::DirEntry| entry.metadata().map_or(0, |it| it.len());
    let sizes: u64 = entries.flatten().map(size).sum();
    assert!((100_000..12_000_000).contains(&sizes), "{sizes} bytes");
    let strangers = fs::read_to_string(server.state().join("audit/anonymous.log"));
    assert!(strangers.expect("strangers have a log").contains("...TRUNCATED"));
}
