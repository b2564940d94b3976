//! The work tree: where it is, and which files belong to it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use crate::{metadata, process};

/// The work tree that we were called in.
pub(crate) struct Repository {
    root: PathBuf,
}

impl Repository {
    /// Asks cargo where the workspace is. The path known at build time will not do: work trees that
    /// share a target folder share this binary.
    pub(crate) fn here() -> Result<Self> {
        let mut cargo = Command::new("cargo");
        cargo.args(["locate-project", "--workspace", "--message-format", "plain"]);
        let manifest = process::output(&mut cargo).context("call xtask inside the work tree")?;
        let root = Path::new(manifest.trim()).parent().context("the manifest has no folder")?;
        Ok(Self { root: root.to_owned() })
    }

    /// A cargo call at the root.
    pub(crate) fn cargo(&self, args: &[&str]) -> Command {
        let mut command = Command::new("cargo");
        command.current_dir(&self.root).args(args);
        command
    }

    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative)
    }

    /// Where cargo puts the debug build of one of our programs.
    pub(crate) fn debug_binary(&self, name: &str) -> Result<PathBuf> {
        Ok(metadata::target_directory(self)?.join("debug").join(name))
    }

    pub(crate) fn read(&self, relative: &str) -> Result<String> {
        let path = self.path(relative);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    /// The files that git tracks or would track, pictures included.
    pub(crate) fn paths(&self) -> Result<Vec<String>> {
        let mut git = Command::new("git");
        git.current_dir(&self.root);
        git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
        let listed = process::output(&mut git).context("the files are those that git lists")?;
        // A tracked file that was deleted in the work tree is still listed.
        let there = listed.split_terminator('\0').filter(|path| self.path(path).is_file());
        Ok(there.map(str::to_owned).collect())
    }

    /// Those of them that are text; what is not UTF-8 is left out.
    pub(crate) fn files(&self) -> Result<Vec<TextFile>> {
        let mut files = Vec::new();
        for path in self.paths()? {
            let bytes =
                fs::read(self.path(&path)).with_context(|| format!("cannot read {path}"))?;
            if let Ok(text) = String::from_utf8(bytes) {
                files.push(TextFile { path, text });
            }
        }
        Ok(files)
    }
}

/// A file of the repository.
#[derive(Debug)]
pub(crate) struct TextFile {
    /// Relative to the root, with `/` between its parts.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl TextFile {
    /// What follows the last dot of the file's name; empty without one.
    pub(crate) fn extension(&self) -> &str {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        name.rsplit_once('.').map_or("", |(_, extension)| extension)
    }

    pub(crate) fn is_rust(&self) -> bool {
        self.extension() == "rs"
    }

    /// The lines, counted from one as editors do.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        numbered(&self.text)
    }
}

/// The lines of `text`, counted from one. A carriage return stays part of its line.
pub(crate) fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.split_terminator('\n'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extension_is_that_of_the_name() {
        let extension =
            |path: &str| TextFile { path: path.into(), text: String::new() }.extension().to_owned();
        assert_eq!(extension("crates/a.b/src/lib.rs"), "rs");
        assert_eq!(extension("crates/a.b/LICENSE"), "");
        assert_eq!(extension(".ci/run"), "");
    }

    #[test]
    fn this_file_belongs_to_the_repository() {
        let files = Repository::here().unwrap().files().unwrap();
        assert!(files.iter().any(|file| file.path == "xtask/src/repository.rs"));
        assert!(files.iter().all(|file| !file.path.starts_with("target/")));
    }
}
