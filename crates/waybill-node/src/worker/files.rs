//! The few files that the node makes for containers by itself.

use std::{
    fs::{self, OpenOptions, Permissions},
    io,
    os::unix::fs::PermissionsExt,
    path::Path,
};

/// A file that is missing is an empty one.
pub(super) fn read_or_empty(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Writes a file that running containers may have mounted: they see the new content.
pub(super) fn write_in_place(path: &Path, content: &str) -> io::Result<()> {
    if fs::read_to_string(path).is_ok_and(|found| found == content) {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(path, content)?;
    fs::set_permissions(path, Permissions::from_mode(0o644))
}

/// Makes the empty file for a container's last words. Whoever the container runs as may write it.
pub(super) fn make_message_file(path: &Path) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o666))
}
