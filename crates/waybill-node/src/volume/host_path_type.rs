//! Paths of the machine itself, and what a pod may demand of them.

use std::{
    fs, io,
    os::unix::fs::{FileTypeExt, OpenOptionsExt},
    path::{Component, Path},
};

use super::error::{Doing, VolumeFault};

/// Checks that something of the wanted type is at `path`, or makes it. If no type is wanted nothing is
/// checked, but a directory is made where nothing is, as stock runtimes do; others need not.
pub(super) fn check(path: &str, wanted: Option<&str>) -> Result<(), VolumeFault> {
    check_path(path)?;
    let place = Path::new(path);
    let (what, is_good): (_, fn(&fs::FileType) -> bool) = match wanted.unwrap_or_default() {
        "" => return make_missing(place),
        "DirectoryOrCreate" => {
            make_missing(place)?;
            ("a directory", fs::FileType::is_dir)
        }
        "Directory" => ("a directory", fs::FileType::is_dir),
        "FileOrCreate" => {
            if is_missing(place)? {
                make_file(place)?;
            }
            ("a file", fs::FileType::is_file)
        }
        "File" => ("a file", fs::FileType::is_file),
        "Socket" => ("a socket file", fs::FileType::is_socket),
        "CharDevice" => ("a character device", fs::FileType::is_char_device),
        "BlockDevice" => ("a block device", fs::FileType::is_block_device),
        other => {
            let value = other.to_owned();
            return Err(VolumeFault::Unsupported { what: "type of a hostPath", value });
        }
    };
    let found = fs::metadata(place).map(|metadata| metadata.file_type());
    match found {
        Ok(found) if is_good(&found) => Ok(()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).doing("looking at", place)
        }
        _ => Err(VolumeFault::HostPathType { path: path.to_owned(), what }),
    }
}

fn check_path(path: &str) -> Result<(), VolumeFault> {
    let refuse = |why| Err(VolumeFault::Path { path: path.to_owned(), why });
    let place = Path::new(path);
    if !place.is_absolute() {
        return refuse("must be an absolute path");
    }
    if place.components().any(|part| part == Component::ParentDir) {
        return refuse("must not contain '..'");
    }
    Ok(())
}

fn make_missing(path: &Path) -> Result<(), VolumeFault> {
    match is_missing(path)? {
        true => fs::create_dir_all(path).doing("making", path),
        false => Ok(()),
    }
}

fn is_missing(path: &Path) -> Result<bool, VolumeFault> {
    match fs::metadata(path) {
        Ok(_) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error).doing("looking at", path),
    }
}

/// Only the file: a missing directory above it is a mistake, as it is for kubelets.
fn make_file(path: &Path) -> Result<(), VolumeFault> {
    let mut options = fs::OpenOptions::new();
    match options.write(true).create_new(true).mode(0o644).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made.map(drop).doing("making", path),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn types_are_checked_or_made_as_by_kubelets() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        fs::create_dir(path("dir")).unwrap();
        fs::write(path("file"), "").unwrap();
        let _listener = UnixListener::bind(path("socket")).unwrap();
        std::os::unix::fs::symlink(path("dir"), path("link")).unwrap();

        let good = [
            ("dir", "Directory"),
            ("link", "Directory"),
            ("dir", "DirectoryOrCreate"),
            ("made/deep", "DirectoryOrCreate"),
            ("file", "File"),
            ("file", "FileOrCreate"),
            ("made/file", "FileOrCreate"),
            ("socket", "Socket"),
            ("socket", ""),
            ("made/untyped", ""),
        ];
        for (name, wanted) in good {
            check(&path(name), Some(wanted)).unwrap_or_else(|fault| panic!("{name}: {fault}"));
        }
        check("/dev/null", Some("CharDevice")).unwrap();
        assert!(Path::new(&path("made/deep")).is_dir());
        assert!(Path::new(&path("made/file")).is_file());
        assert!(Path::new(&path("made/untyped")).is_dir());

        let bad = [
            ("file", "Directory", "a directory"),
            ("nothing", "Directory", "a directory"),
            ("file", "DirectoryOrCreate", "a directory"),
            ("dir", "File", "a file"),
            ("dir", "FileOrCreate", "a file"),
            ("nothing", "File", "a file"),
            ("file", "Socket", "a socket file"),
            ("file", "CharDevice", "a character device"),
            ("nothing", "BlockDevice", "a block device"),
        ];
        for (name, wanted, what) in bad {
            let error = check(&path(name), Some(wanted)).unwrap_err().to_string();
            let place = path(name);
            assert_eq!(error, format!("hostPath type check failed: {place} is not {what}"));
        }
        let error = check(&path("missing/file"), Some("FileOrCreate")).unwrap_err().to_string();
        assert!(error.starts_with("making "), "{error}");
    }

    #[test]
    fn paths_are_absolute_and_have_no_way_up() {
        for path in ["relative", "", "/a/../b"] {
            assert!(matches!(check(path, None), Err(VolumeFault::Path { .. })), "{path}");
        }
        let error = check("/", Some("Tape")).unwrap_err().to_string();
        assert_eq!(error, "\"Tape\" is not a type of a hostPath that this node knows");
    }
}
