//! How much room the parts of a state directory take on its own file system: never through a mount, never through a link.

use std::{
    fmt, fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// One entry of the state directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) files: u64,
}

/// Its directories, the largest first. What cannot be read counts as nothing.
pub(super) fn of(state_dir: &Path) -> Vec<Size> {
    let Ok(device) = fs::symlink_metadata(state_dir).map(|it| it.dev()) else { return Vec::new() };
    let entries = fs::read_dir(state_dir).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|it| it.is_dir()));
    let mut sizes: Vec<_> = directories
        .map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            Size { name, ..below(entry.path(), device) }
        })
        .collect();
    sizes.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
    sizes
}

fn below(directory: PathBuf, device: u64) -> Size {
    let mut size = Size::default();
    let mut rest = vec![directory];
    while let Some(directory) = rest.pop() {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        for entry in entries {
            let Ok(found) = entry.metadata() else { continue };
            if found.dev() != device {
                continue;
            }
            if found.is_dir() {
                rest.push(entry.path());
            } else {
                size.files += 1;
                // Of the disk, so that sparse files count for what they take. The unit is the kernel's.
                size.bytes = size.bytes.saturating_add(found.blocks().saturating_mul(512));
            }
        }
    }
    size
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files = self.files;
        match self.bytes {
            bytes if bytes < 1 << 20 => write!(f, "{} KiB in {files} files", bytes >> 10),
            bytes => write!(f, "{} MiB in {files} files", bytes >> 20),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn files_count_and_links_do_not_lead_away() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("store/deep")).unwrap();
        fs::write(dir.path().join("store/deep/log"), vec![1; 64 << 10]).unwrap();
        fs::create_dir(dir.path().join("logs")).unwrap();
        symlink("/usr", dir.path().join("logs/elsewhere")).unwrap();
        symlink("/usr", dir.path().join("usr")).unwrap();
        let sizes = of(dir.path());
        let names: Vec<_> = sizes.iter().map(|it| (it.name.as_str(), it.files)).collect();
        assert_eq!(names, [("store", 1), ("logs", 1)]);
        assert!(sizes[0].bytes >= 64 << 10 && sizes[1].bytes <= 4 << 10, "{sizes:?}");
    }
}
