//! From the `command` of a kubeconfig to a program.
//!
//! A name with a slash in it is a path; kubeconfigs have been read so that it is relative to their directory.
//! Any other is looked up on `PATH`, and never in the working directory, which may be somebody else's.

use std::{
    env::split_paths,
    ffi::OsStr,
    path::{Path, PathBuf},
};

use rustix::fs::{Access, access};

/// Where the program is; `None` if `PATH` does not have it.
pub(crate) fn find(command: &str, path: &OsStr) -> Option<PathBuf> {
    if command.contains('/') {
        return Some(PathBuf::from(command));
    }
    split_paths(path)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(command))
        .find(|program| is_executable(program))
}

fn is_executable(program: &Path) -> bool {
    program.is_file() && access(program, Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    /// CRED-05
    #[test]
    fn names_are_found_on_path_only_and_paths_are_left_alone_cred_05() {
        let dir = tempfile::tempdir().unwrap();
        let [first, second] = ["first", "second"].map(|name| dir.path().join(name));
        for (dir, mode) in [(&first, 0o644), (&second, 0o755)] {
            fs::create_dir(dir).unwrap();
            fs::write(dir.join("plugin"), "").unwrap();
            fs::set_permissions(dir.join("plugin"), fs::Permissions::from_mode(mode)).unwrap();
        }
        fs::create_dir(first.join("directory")).unwrap();
        let path = std::env::join_paths([Path::new("."), &first, &second]).unwrap();

        let found = |command| find(command, &path);
        assert_eq!(found("plugin"), Some(second.join("plugin")), "the first cannot be run");
        assert_eq!(found("directory"), None);
        assert_eq!(found("Cargo.toml"), None, "the working directory is not searched");
        assert_eq!(found("./plugin"), Some(PathBuf::from("./plugin")));
        assert_eq!(find("plugin", OsStr::new("")), None);
    }
}
