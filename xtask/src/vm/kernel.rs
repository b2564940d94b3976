//! The kernels of Debian that a machine can have, unpacked into the cache.

use std::{
    collections::HashSet,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use crate::{
    process,
    tools::{self, Tool},
};

/// What is needed before there are disks, and before a container can start. What a kernel has built in is not loaded; all else every one of
/// them has built in.
const MODULES: &[&str] = &["virtio_pci", "virtio_blk", "ext4", "overlay"];

/// The kernel's own list of what it has built in: a path in each line.
const BUILT_IN: &str = "modules.builtin";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kernel {
    /// Linux 6.1
    Debian12,
    /// Linux 6.12
    Trixie,
}

/// A kernel on disk.
pub(super) struct Files {
    pub(super) image: PathBuf,
    /// In the order in which they are to be loaded: names and contents.
    pub(super) modules: Vec<Module>,
}

/// A kernel module, not compressed.
pub(super) struct Module {
    pub(super) name: String,
    pub(super) content: Vec<u8>,
}

impl Kernel {
    /// What has to be on this machine.
    pub(crate) fn tools(self) -> &'static [Tool] {
        match self {
            Self::Debian12 => tools::VM_DEBIAN12,
            Self::Trixie => tools::VM_TRIXIE,
        }
    }

    pub(super) fn files(self) -> Result<Files> {
        let folder = tools::kernel_folder(match self {
            Self::Debian12 => "bookworm",
            Self::Trixie => "trixie",
        });
        let image = find(&folder.join("boot"), &|name| name.starts_with("vmlinuz-"))?
            .with_context(|| format!("{} holds no kernel", folder.display()))?;
        // Debian trixie has `/lib` below `/usr`, also in its packages.
        let library = ["lib/modules", "usr/lib/modules"].map(|path| folder.join(path));
        let library = library.iter().find(|path| path.exists());
        let library = library.with_context(|| format!("{} holds no modules", folder.display()))?;
        let mut modules = Loading { library, seen: HashSet::new(), modules: Vec::new() };
        MODULES.iter().try_for_each(|name| modules.add(name))?;
        Ok(Files { image, modules: modules.modules })
    }
}

/// Modules with those that they depend on, which come first.
struct Loading<'a> {
    library: &'a Path,
    seen: HashSet<String>,
    modules: Vec<Module>,
}

impl Loading<'_> {
    fn add(&mut self, name: &str) -> Result<()> {
        if !self.seen.insert(name.to_owned()) {
            return Ok(());
        }
        let is_it = |file: &str| {
            let stem = file.split_once(".ko").map(|(stem, _)| stem.replace('-', "_"));
            stem.is_some_and(|stem| stem == name.replace('-', "_"))
        };
        let Some(path) = find(self.library, &is_it)? else {
            let listed = find(self.library, &|file| file == BUILT_IN)?.map(fs::read_to_string);
            let listed = listed.transpose()?.unwrap_or_default();
            if listed.lines().filter_map(|line| line.rsplit('/').next()).any(is_it) {
                return Ok(());
            }
            bail!("{} has no module {name}", self.library.display());
        };
        let content = content(&path)?;
        for dependency in dependencies(&content) {
            self.add(&dependency)?;
        }
        self.modules.push(Module { name: name.to_owned(), content });
        Ok(())
    }
}

fn content(path: &Path) -> Result<Vec<u8>> {
    match path.extension().and_then(OsStr::to_str) {
        Some("xz") => process::output_bytes(Command::new("xz").arg("-dc").arg(path)),
        Some("ko") => fs::read(path).with_context(|| format!("cannot read {}", path.display())),
        _ => bail!("{} is packed in a way that nobody here knows", path.display()),
    }
}

/// What a module says of itself: entries that end in a zero, one of which is `depends=a,b`.
fn dependencies(module: &[u8]) -> Vec<String> {
    let entry = module.split(|byte| *byte == 0).find_map(|entry| entry.strip_prefix(b"depends="));
    let names = String::from_utf8_lossy(entry.unwrap_or_default()).into_owned();
    names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// The first file below `folder` whose name is the right one.
fn find(folder: &Path, is_it: &dyn Fn(&str) -> bool) -> Result<Option<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            if let Some(found) = find(&entry.path(), is_it)? {
                return Ok(Some(found));
            }
        } else if entry.file_name().to_str().is_some_and(is_it) {
            return Ok(Some(entry.path()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_comes_after_those_it_depends_on() {
        let library = tempfile::tempdir().unwrap();
        let module = |path: &str, depends: &str| {
            let path = library.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("ELF\0license=GPL\0depends={depends}\0name=x\0")).unwrap();
        };
        module("6.1/fs/a.ko", "b_c,d");
        module("6.1/lib/b-c.ko", "d");
        module("6.1/lib/d.ko", "");
        let mut loading =
            Loading { library: library.path(), seen: HashSet::new(), modules: Vec::new() };
        loading.add("a").unwrap();
        let names: Vec<_> = loading.modules.iter().map(|module| module.name.as_str()).collect();
        assert_eq!(names, ["d", "b_c", "a"]);
        assert!(loading.add("e").unwrap_err().to_string().ends_with("has no module e"));
        fs::write(library.path().join("6.1/modules.builtin"), "kernel/fs/e.ko\nkernel/f.ko\n")
            .unwrap();
        loading.add("f").unwrap();
        assert_eq!(loading.modules.len(), 3);
    }
}
