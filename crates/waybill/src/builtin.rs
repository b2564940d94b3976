//! The built-in images, made at run time from programs that this machine has.
//!
//! A program that is not static brings its loader and libraries along: the loader itself says which.

mod elf;

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};
use waybill_runtime::image::build::ImageBuilder;

/// Where commands are found in the images.
const PATH: &str = "/bin:/sbin:/usr/bin:/usr/sbin";

/// Where distributions put busybox.
const BUSYBOX: [&str; 4] =
    ["/usr/bin/busybox", "/bin/busybox", "/usr/local/bin/busybox", "/sbin/busybox"];

/// An image that is made from programs of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum BuiltIn {
    /// The machine's busybox.
    Busybox,
    /// This program, and busybox where there is one.
    Tools,
}

impl BuiltIn {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Busybox => "waybill.dev/busybox:1",
            Self::Tools => "waybill.dev/tools:1",
        }
    }

    /// What command lines call it.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Busybox => "busybox",
            Self::Tools => "tools",
        }
    }

    /// What it is made of.
    pub(crate) fn programs(self) -> Result<Vec<Program>> {
        match (self, busybox()) {
            (Self::Busybox, None) => bail!("this machine has no busybox; install busybox-static"),
            (Self::Busybox, Some(busybox)) => Ok(vec![busybox]),
            (Self::Tools, busybox) => {
                let own = std::env::current_exe().context("finding this program")?;
                Ok([Program::new("waybill", own)].into_iter().chain(busybox).collect())
            }
        }
    }
}

/// A program that goes into an image.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    name: &'static str,
    path: PathBuf,
}

impl Program {
    fn new(name: &'static str, path: PathBuf) -> Self {
        Self { name, path }
    }

    /// Changes when the program does.
    pub(crate) fn print(&self) -> Result<String> {
        let path = self.path.display();
        let found = fs::metadata(&self.path).with_context(|| format!("cannot read {path}"))?;
        Ok(format!("{path} {} {}.{}", found.len(), found.mtime(), found.mtime_nsec()))
    }

    /// The files of its loader and libraries, by their place in an image; none if it is static.
    fn libraries(&self, program: &[u8]) -> Result<BTreeMap<PathBuf, PathBuf>> {
        let Some(loader) = elf::interpreter(program)? else { return Ok(BTreeMap::new()) };
        let output = Command::new(&loader)
            .arg("--list")
            .arg(&self.path)
            .env_clear()
            .output()
            .with_context(|| format!("cannot run {}", loader.display()))?;
        if !output.status.success() {
            bail!("{} cannot say which libraries it loads", loader.display());
        }
        let listed = String::from_utf8_lossy(&output.stdout);
        let mut files: BTreeMap<_, _> =
            listed.lines().filter_map(listed_library).map(|it| (it.clone(), it)).collect();
        files.insert(loader.clone(), loader);
        Ok(files)
    }
}

/// The machine's busybox.
pub(crate) fn busybox() -> Option<Program> {
    let found = BUSYBOX.iter().map(Path::new).find(|path| path.is_file())?;
    Some(Program::new("busybox", found.to_owned()))
}

/// The image as an archive.
pub(crate) fn archive(image: BuiltIn, programs: &[Program]) -> Result<Vec<u8>> {
    let mut builder = ImageBuilder::new()
        .directory("tmp", 0o1777)
        .directory("root", 0o700)
        .file(
            "etc/passwd",
            0o644,
            "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n",
        )
        .file("etc/group", 0o644, "root:x:0:\nnogroup:x:65534:\n")
        .variable("PATH", PATH)
        .working_directory("/");
    let mut libraries = BTreeMap::new();
    for program in programs {
        let content = fs::read(&program.path)
            .with_context(|| format!("cannot read {}", program.path.display()))?;
        libraries.extend(program.libraries(&content)?);
        builder = builder.file(&format!("bin/{}", program.name), 0o755, content);
        if program.name == "busybox" {
            for applet in applets(&program.path)? {
                builder = builder.symlink(&format!("bin/{applet}"), "busybox");
            }
        }
    }
    for (place, file) in libraries {
        let content = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        builder = builder.file(&place.to_string_lossy(), 0o755, content);
    }
    builder = match image {
        BuiltIn::Busybox => builder.command(&["sh"]),
        BuiltIn::Tools => builder.command(&["waybill", "hello"]),
    };
    let name = image.name();
    builder.archive(name).with_context(|| format!("cannot make the image {name}"))
}

/// An image that holds one file, `/busybox`, and no shell or `env` by name; `None` if the machine has no busybox
/// or one that needs libraries.
pub(crate) fn single_static_binary(name: &str) -> Result<Option<Vec<u8>>> {
    let Some(busybox) = busybox() else { return Ok(None) };
    let content = fs::read(&busybox.path)
        .with_context(|| format!("cannot read {}", busybox.path.display()))?;
    if elf::interpreter(&content)?.is_some() {
        return Ok(None);
    }
    Ok(Some(ImageBuilder::new().file("busybox", 0o755, content).archive(name)?))
}

fn applets(busybox: &Path) -> Result<Vec<String>> {
    let output = Command::new(busybox).arg("--list").env_clear().output();
    let output = output.with_context(|| format!("cannot run {}", busybox.display()))?;
    let names = String::from_utf8_lossy(&output.stdout);
    Ok(names
        .lines()
        .filter(|name| *name != "busybox" && is_plain(name))
        .map(str::to_owned)
        .collect())
}

/// Nothing but a file name.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_[".contains(c))
}

/// The path in a line like `libc.so.6 => /lib/libc.so.6 (0x…)`, of which the vdso has none.
fn listed_library(line: &str) -> Option<PathBuf> {
    let (_, found) = line.split_once(" => ")?;
    let path = found.rsplit_once(" (").map_or(found, |(path, _)| path).trim();
    path.starts_with('/').then(|| PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_those_that_the_loader_lists() {
        let line = "\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f00)";
        assert_eq!(listed_library(line), Some("/lib/x86_64-linux-gnu/libc.so.6".into()));
        assert_eq!(listed_library("\tlinux-vdso.so.1 (0x00007ffd)"), None);
        assert_eq!(listed_library("\t/lib64/ld-linux-x86-64.so.2 (0x00007f)"), None);
        assert_eq!(listed_library("\tlibx.so => not found"), None);
    }

    /// This very test program is dynamic on glibc, and static on musl.
    #[test]
    fn a_program_names_the_libraries_that_it_has() {
        let own = std::env::current_exe().unwrap();
        let content = fs::read(&own).unwrap();
        let dynamic = elf::interpreter(&content).unwrap().is_some();
        let libraries = Program::new("test", own).libraries(&content).unwrap();
        assert_eq!(libraries.is_empty(), !dynamic);
        assert!(libraries.values().all(|file| file.is_file()), "{libraries:?}");
    }

    #[test]
    fn an_applet_is_a_file_name() {
        assert!(is_plain("ls") && is_plain("[[") && is_plain("run-parts"));
        assert!(!is_plain("") && !is_plain("../x") && !is_plain("a b"));
    }
}
