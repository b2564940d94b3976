//! Writes the files of a volume so that readers see all of the old content or all of the new.
//!
//! ```text
//!   volume/..2026_11_16_03_25_00.1234/   the files, in a directory of their own
//!   volume/..data                        a link to it, replaced in one step
//!   volume/name                          a link to ..data/name, for each top-level name
//! ```
//!
//! The layout is that of kubelets, because programs watch `..data`. Containers mount such volumes
//! read-only, so what is found here is what was written here.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, fchown, symlink},
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use uuid::Uuid;
use waybill_core::secret::SecretBytes;

use super::{
    content::{FileContent, Files},
    error::{Doing, VolumeFault},
    ownership::{self, Access},
};

const DATA: &str = "..data";
const NEW_DATA: &str = "..data_tmp";

/// Whether there was anything to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    Changed,
    Unchanged,
}

/// Makes `files` the content of the volume in `directory`.
pub(super) fn write(
    directory: &Path,
    files: &Files,
    group: Option<u32>,
    now: Timestamp,
) -> Result<Written, VolumeFault> {
    allow_passage(directory)?;
    let old = current(directory)?;
    if let Some(old) = &old
        && holds(old, files)?
    {
        // A node that was killed may have left links out or things behind.
        link_all(directory, files)?;
        remove_all_but(directory, files, old)?;
        return Ok(Written::Unchanged);
    }
    let name = format!("..{}.{}", now.strftime("%Y_%m_%d_%H_%M_%S"), Uuid::new_v4().simple());
    let new = directory.join(&name);
    make_directory(&new)?;
    for (path, file) in files.iter() {
        write_file(&new, path, file)?;
    }
    if let Some(group) = group {
        ownership::give_to_group(&new, group, Access::Read)?;
    }
    switch(directory, &name)?;
    link_all(directory, files)?;
    remove_all_but(directory, files, &new)?;
    Ok(Written::Changed)
}

/// The directory of the volume is open to all, whatever the node's umask; who may read is up to the files.
fn allow_passage(directory: &Path) -> Result<(), VolumeFault> {
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(directory, mode).doing("changing mode of", directory)
}

/// The directory that `..data` leads to.
fn current(directory: &Path) -> Result<Option<PathBuf>, VolumeFault> {
    let link = directory.join(DATA);
    match fs::read_link(&link) {
        Ok(target) => Ok(Some(directory.join(target))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).doing("reading", &link),
    }
}

/// Whether the files in `old` are those, with that content.
fn holds(old: &Path, files: &Files) -> Result<bool, VolumeFault> {
    let mut found = BTreeSet::new();
    list(old, Path::new(""), &mut found)?;
    if found.len() != files.iter().len() {
        return Ok(false);
    }
    for (path, file) in files.iter() {
        let is_same = found.contains(Path::new(path))
            && file.bytes.constant_time_eq(read(&old.join(path))?.expose());
        if !is_same {
            return Ok(false);
        }
    }
    Ok(true)
}

fn list(root: &Path, below: &Path, found: &mut BTreeSet<PathBuf>) -> Result<(), VolumeFault> {
    let directory = root.join(below);
    let entries = match fs::read_dir(&directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.doing("reading", &directory)?,
    };
    for entry in entries {
        let entry = entry.doing("reading", &directory)?;
        let path = below.join(entry.file_name());
        if entry.file_type().doing("looking at", &entry.path())?.is_dir() {
            list(root, &path, found)?;
        } else {
            found.insert(path);
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<SecretBytes, VolumeFault> {
    let mut file = fs::File::open(path).doing("opening", path)?;
    let length = file.metadata().doing("looking at", path)?.len();
    // Taken at once: a vector that grows would leave pieces behind.
    let mut content = Vec::with_capacity(usize::try_from(length).unwrap_or_default() + 1);
    file.read_to_end(&mut content).doing("reading", path)?;
    Ok(content.into())
}

fn write_file(root: &Path, path: &str, file: &FileContent) -> Result<(), VolumeFault> {
    let place = root.join(path);
    let mut above = root.to_owned();
    let parents = Path::new(path).parent().into_iter().flat_map(Path::components);
    for part in parents {
        above.push(part);
        make_directory(&above)?;
    }
    let mut options = fs::OpenOptions::new();
    let mut opened =
        options.write(true).create_new(true).mode(0o600).open(&place).doing("making", &place)?;
    opened.write_all(file.bytes.expose()).doing("writing", &place)?;
    if file.owner.is_some() {
        fchown(&opened, file.owner, None).doing("changing owner of", &place)?;
    }
    let mode = fs::Permissions::from_mode(file.mode);
    opened.set_permissions(mode).doing("changing mode of", &place)
}

fn make_directory(path: &Path) -> Result<(), VolumeFault> {
    match fs::DirBuilder::new().mode(0o755).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        made => made.doing("making", path)?,
    }
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(path, mode).doing("changing mode of", path)
}

fn switch(directory: &Path, name: &str) -> Result<(), VolumeFault> {
    let (new, data) = (directory.join(NEW_DATA), directory.join(DATA));
    remove(&new)?;
    symlink(name, &new).doing("making", &new)?;
    fs::rename(&new, &data).doing("replacing", &data)
}

fn link_all(directory: &Path, files: &Files) -> Result<(), VolumeFault> {
    for top in files.top_level() {
        let link = directory.join(top);
        match symlink(Path::new(DATA).join(top), &link) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made.doing("making", &link)?,
        }
    }
    Ok(())
}

/// Removes what belongs to no content but `kept`: old directories, and links to files that are gone.
fn remove_all_but(directory: &Path, files: &Files, kept: &Path) -> Result<(), VolumeFault> {
    let tops = files.top_level();
    for entry in fs::read_dir(directory).doing("reading", directory)? {
        let path = entry.doing("reading", directory)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path != kept && name != DATA && !tops.contains(name) {
            remove(&path)?;
        }
    }
    Ok(())
}

fn remove(path: &Path) -> Result<(), VolumeFault> {
    let is_directory = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found.doing("looking at", path)?.is_dir(),
    };
    let removed = if is_directory { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    removed.doing("removing", path)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn files(content: &BTreeMap<String, String>) -> Files {
        let mut files = Files::default();
        for (path, text) in content {
            let bytes = text.as_bytes().to_vec().into();
            files.add(path, FileContent { bytes, mode: 0o640, owner: None }).unwrap();
        }
        files
    }

    fn content(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
    }

    fn put(directory: &Path, content: &BTreeMap<String, String>) -> Written {
        write(directory, &files(content), None, Timestamp::UNIX_EPOCH).unwrap()
    }

    /// What a container sees: everything that is reached by names that do not begin with two dots.
    fn seen(directory: &Path) -> BTreeMap<String, String> {
        let mut seen = BTreeMap::new();
        let mut left = vec![directory.to_owned()];
        while let Some(next) = left.pop() {
            for entry in fs::read_dir(next).unwrap() {
                let path = entry.unwrap().path();
                if path.file_name().unwrap().to_str().unwrap().starts_with("..") {
                    continue;
                }
                if path.is_dir() {
                    left.push(path);
                } else {
                    let name = path.strip_prefix(directory).unwrap().to_str().unwrap();
                    seen.insert(name.to_owned(), fs::read_to_string(&path).unwrap());
                }
            }
        }
        seen
    }

    #[test]
    fn the_layout_is_that_of_kubelets() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        assert_eq!(put(root, &content(&[("a", "1"), ("sub/b", "2")])), Written::Changed);
        let target = fs::read_link(root.join("..data")).unwrap();
        let target = target.to_str().unwrap();
        assert!(target.starts_with("..1970_01_01_00_00_00."), "{target}");
        assert_eq!(fs::read_link(root.join("a")).unwrap(), Path::new("..data/a"));
        assert_eq!(fs::read_link(root.join("sub")).unwrap(), Path::new("..data/sub"));
        let mode =
            |path: &str| fs::metadata(root.join(path)).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode("a"), mode("sub"), mode(".")), (0o640, 0o755, 0o755));
    }

    #[test]
    fn nothing_is_written_when_nothing_has_changed() {
        let directory = tempfile::tempdir().unwrap();
        let target = || fs::read_link(directory.path().join("..data")).unwrap();
        put(directory.path(), &content(&[("a", "1")]));
        let first = target();
        assert_eq!(put(directory.path(), &content(&[("a", "1")])), Written::Unchanged);
        assert_eq!(target(), first);
        assert_eq!(put(directory.path(), &content(&[("a", "2")])), Written::Changed);
        assert_ne!(target(), first);
        assert!(!directory.path().join(first).exists(), "the old content is gone");
    }

    #[test]
    fn what_a_killed_node_left_is_mended() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let wanted = content(&[("a", "1"), ("b", "2")]);
        put(root, &wanted);
        fs::remove_file(root.join("a")).unwrap();
        fs::create_dir(root.join("..half")).unwrap();
        fs::write(root.join("..half/x"), "").unwrap();
        symlink("nowhere", root.join("..data_tmp")).unwrap();
        assert_eq!(put(root, &wanted), Written::Unchanged);
        assert_eq!(seen(root), wanted);
        assert_eq!(fs::read_dir(root).unwrap().count(), 4, "two links, ..data and its directory");
        // The link leads nowhere: the machine's memory is new, the directory is not.
        let data = fs::read_link(root.join("..data")).unwrap();
        fs::remove_dir_all(root.join(data)).unwrap();
        assert_eq!(put(root, &wanted), Written::Changed);
        assert_eq!(seen(root), wanted);
    }

    fn any_content() -> impl Strategy<Value = BTreeMap<String, String>> {
        // No name is both a file and a directory.
        let path = "(f[a-c]|d[ab]/f[ab]|d[ab]/e/f)";
        proptest::collection::btree_map(path, "[a-c]{0,2}", 0..6)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Whatever was written before, readers see what was written last and nothing else.
        #[test]
        fn the_last_content_is_what_is_seen(
            contents in proptest::collection::vec(any_content(), 1..5),
        ) {
            let directory = tempfile::tempdir().unwrap();
            for content in &contents {
                put(directory.path(), content);
                prop_assert_eq!(&seen(directory.path()), content);
            }
        }
    }
}
