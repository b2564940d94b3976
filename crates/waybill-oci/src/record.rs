//! Records of what is about to happen. Without one it does not.

use std::{fs, io, io::Write, os::unix::fs::OpenOptionsExt, path::Path};

use rustix::fs::statvfs;
use waybill_api::stock::{SessionRecord, StockKind, Verdict, cut_argv};

use crate::{bundle::Identity, cgroup::SessionCgroup, node::Node};

/// A record of `argv` in a container, without session and cgroup.
pub(crate) fn record(
    node: &Node,
    identity: &Identity,
    container_id: &str,
    argv: &[String],
    verdict: Verdict,
) -> SessionRecord {
    SessionRecord {
        version: SessionRecord::VERSION,
        session: None,
        kind: StockKind::Exec,
        namespace: identity.namespace.clone(),
        pod: identity.pod.clone(),
        uid: identity.uid.clone(),
        container: identity.container.clone(),
        container_id: container_id.to_owned(),
        argv: cut_argv(argv),
        cgroup: String::new(),
        cgroup_id: 0,
        started_ns: node.nanoseconds(),
        pid: Some(std::process::id()),
        tty: false,
        verdict,
        privileged: false,
        ended_ns: None,
        exit_code: None,
    }
}

/// Notes where its processes will be.
pub(crate) fn place(record: &mut SessionRecord, cgroup: &SessionCgroup) {
    record.cgroup = cgroup.path().to_string_lossy().into_owned();
    record.cgroup_id = cgroup.id;
}

/// Writes the record of a session that gate signed.
pub(crate) fn write(file: &Path, record: &SessionRecord) -> io::Result<()> {
    let directory = file.parent().ok_or(io::ErrorKind::NotFound)?;
    let name = file.file_name().ok_or(io::ErrorKind::NotFound)?.to_string_lossy();
    let beside = directory.join(format!(".{name}"));
    let mut open = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    // Whoever reads the directory sees whole records only.
    let written =
        open.write_all(&serde_json::to_vec(record)?).and_then(|()| fs::rename(&beside, file));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

/// Writes a record that anybody can cause, unless such would push out what users do: they have three
/// quarters of the room.
pub(crate) fn write_of_stranger(file: &Path, record: &SessionRecord) -> io::Result<()> {
    let room = statvfs(file.parent().unwrap_or(Path::new("/")))?;
    let scarce = |free: u64, all: u64| all > 0 && free < all / 4;
    if scarce(room.f_bavail, room.f_blocks) || scarce(room.f_favail, room.f_files) {
        return Err(io::ErrorKind::StorageFull.into());
    }
    write(file, record)
}
