//! The files of a node below a root: `/` on the node itself, a mount of it in a pod, any folder in a test.
//!
//! Every file is replaced by rename, so that whoever reads it, or is started from it, finds the old one or the new one.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use super::{HostFiles, SetupError, SetupPlan, WRAPPER};

/// Beside the folder of the wrapper, which finds it there.
const WRAPPER_CONFIG: &str = "/opt/waybill/oci.json";

/// A configuration file of a runtime is a few kilobytes.
const LARGEST: u64 = 1 << 20;

/// A node's files.
#[derive(Clone, Debug)]
pub struct Host {
    root: PathBuf,
}

/// What an installation changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// The runtime must read its configuration again.
    pub configuration: bool,
    /// The wrapper, or what it is told, is another.
    pub wrapper: bool,
}

/// Why a file cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {path}")]
pub struct HostError {
    /// Which file of the node.
    pub path: String,
    /// What the system said.
    #[source]
    pub source: io::Error,
}

impl Host {
    /// The node whose `/` is at `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Where a path of the node is for this process.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Its `/`.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Installs the wrapper and what it is told, and then carries out a plan: no configuration names a wrapper that is not there.
    pub fn install(
        &self,
        plan: &SetupPlan,
        wrapper: &[u8],
        wrapper_config: &str,
    ) -> Result<Changed, HostError> {
        let told = self.replace(WRAPPER_CONFIG, wrapper_config.as_bytes(), 0o644)?;
        let program = self.replace(WRAPPER, wrapper, 0o755)?;
        Ok(Changed { configuration: self.apply(plan)?, wrapper: told | program })
    }

    /// Carries out a plan; says whether anything changed.
    pub fn apply(&self, plan: &SetupPlan) -> Result<bool, HostError> {
        let mut changed = false;
        for (path, text) in &plan.files {
            changed |= match text {
                Some(text) => self.replace(path, text.as_bytes(), 0o644)?,
                None => self.remove(path)?,
            };
        }
        Ok(changed)
    }

    /// Takes the wrapper away. While containers live that were made through it, a link to the real runtime stays in
    /// its place: their runtime calls that path until they end.
    pub fn remove_wrapper(&self, real_runtime: &str, in_use: bool) -> Result<(), HostError> {
        if in_use {
            let path = self.path(WRAPPER);
            let failed = |source| HostError { path: WRAPPER.to_owned(), source };
            let new = beside(&path);
            let _ = fs::remove_file(&new);
            symlink(real_runtime, &new).map_err(failed)?;
            fs::rename(&new, &path).map_err(failed)?;
            self.remove(WRAPPER_CONFIG)?;
            return Ok(());
        }
        self.remove(WRAPPER)?;
        self.remove(WRAPPER_CONFIG)?;
        for folder in ["/opt/waybill/bin", "/opt/waybill"] {
            // Somebody else's files keep it.
            let _ = fs::remove_dir(self.path(folder));
        }
        Ok(())
    }

    /// Writes a file unless it is the same; says whether it was another. One that is there keeps its mode, unless it
    /// is a program.
    pub fn replace(&self, path: &str, content: &[u8], mode: u32) -> Result<bool, HostError> {
        let failed = |source| HostError { path: path.to_owned(), source };
        let place = self.path(path);
        let found = fs::symlink_metadata(&place).ok();
        // A link, as uninstalling leaves one, is replaced and not followed.
        let regular = found.filter(fs::Metadata::is_file);
        let same = regular.as_ref().is_some_and(|found| found.len() == content.len() as u64)
            && fs::read(&place).is_ok_and(|found| found == content);
        let is_program = mode & 0o111 != 0;
        let runs = regular.as_ref().is_some_and(|found| found.permissions().mode() & 0o111 != 0);
        if same && (!is_program || runs) {
            return Ok(false);
        }
        let kept = regular.filter(|_| !is_program).map(|found| found.permissions().mode() & 0o7777);
        self.write(&place, content, kept.unwrap_or(mode)).map_err(failed)?;
        Ok(true)
    }

    fn write(&self, place: &Path, content: &[u8], mode: u32) -> io::Result<()> {
        let folder = place.parent().unwrap_or(&self.root);
        fs::create_dir_all(folder)?;
        let new = beside(place);
        let _ = fs::remove_file(&new);
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.write_all(content)?;
        file.sync_all()?;
        drop(file);
        fs::rename(&new, place)?;
        fs::File::open(folder)?.sync_all()
    }

    fn remove(&self, path: &str) -> Result<bool, HostError> {
        match fs::remove_file(self.path(path)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(HostError { path: path.to_owned(), source }),
        }
    }
}

impl HostFiles for Host {
    fn read(&self, path: &str) -> Result<Option<String>, SetupError> {
        let failed = |why: String| SetupError::Read { path: path.to_owned(), why };
        let place = self.path(path);
        match fs::metadata(&place) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error.to_string())),
            Ok(found) if found.len() > LARGEST => return Err(failed("it is too large".to_owned())),
            Ok(_) => {}
        }
        fs::read_to_string(&place).map(Some).map_err(|error| failed(error.to_string()))
    }

    fn list(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(folder)).into_iter().flatten().flatten();
        let mut names: Vec<_> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.retain(|name| !name.starts_with('.'));
        names.sort();
        names
    }

    fn is_program(&self, path: &str) -> bool {
        let mut path = path.to_owned();
        // A link of the node leads to a path of the node.
        for _ in 0..8 {
            let place = self.path(&path);
            let Ok(target) = fs::read_link(&place) else { break };
            path = match target.is_absolute() {
                true => target.display().to_string(),
                false => {
                    let folder = Path::new(&path).parent().unwrap_or(Path::new("/"));
                    folder.join(target).display().to_string()
                }
            };
        }
        let found = fs::metadata(self.path(&path));
        found.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    }
}

/// A name of our own in the same folder.
fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.waybill-new"))
}
