//! What a machine finds in its memory when it starts.

use std::{
    fs::File,
    io::BufWriter,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use super::{Machine, Root, cpio::Archive, kernel::Module};
use crate::process;

/// What becomes `/` is kept here, since nothing can be mounted over the first root.
const SYSTEM: &str = "system";

/// The first program: loads modules and goes on in a root of its own.
const FIRST: &str = include_str!("first.sh");

/// The second: what an init system does, then the command, then the end of the machine.
const SECOND: &str = include_str!("second.sh");

/// Writes it to `file`.
pub(super) fn write(
    file: &Path,
    modules: &[Module],
    machine: &Machine<'_>,
    command: &[String],
) -> Result<()> {
    let mut archive = Archive::new(BufWriter::new(File::create(file)?));
    let busybox = which("busybox")?;
    add_program(&mut archive, "bin/busybox", &busybox)?;
    archive.program("init", FIRST.as_bytes())?;
    archive.folder("new")?;
    for (at, module) in modules.iter().enumerate() {
        archive.program(&format!("modules/{at:02}-{}.ko", module.name), &module.content)?;
    }
    let system = |path: &str| format!("{SYSTEM}/{path}");
    for folder in ["dev", "etc", "proc", "root", "run", "sys", "tmp", "var"] {
        archive.folder(&system(folder))?;
    }
    archive.program(&system("etc/passwd"), b"root:x:0:0:root:/root:/bin/sh\n")?;
    archive.program(&system("etc/group"), b"root:x:0:\n")?;
    archive.program(&system("sbin/init"), SECOND.as_bytes())?;
    archive.program(&system("command"), script(machine.root, command).as_bytes())?;
    add_program(&mut archive, &system("bin/busybox"), &busybox)?;
    for program in machine.programs {
        let name = program.file_name().and_then(|name| name.to_str());
        let name = name.with_context(|| format!("{} has no name", program.display()))?;
        add_program(&mut archive, &system(&format!("bin/{name}")), &stripped(program, file)?)?;
    }
    for program in machine.in_place {
        let path = program.to_str().with_context(|| format!("{} is no text", program.display()))?;
        let place = system(path.trim_start_matches('/'));
        add_program(&mut archive, &place, &stripped(program, file)?)?;
    }
    archive.finish().map(drop)
}

/// How `/` is, and then the command.
fn script(root: Root, command: &[String]) -> String {
    let propagation = match root {
        Root::Shared => "--make-rshared",
        Root::Private => "--make-rprivate",
    };
    let words: Vec<_> = command.iter().map(|word| process::quoted(word)).collect();
    format!("mount {propagation} / || exit\n{}\n", words.join(" "))
}

/// Adds a program at `path`, and its libraries where it looks for them.
fn add_program(archive: &mut Archive<BufWriter<File>>, path: &str, from: &Path) -> Result<()> {
    archive.copy(path, from)?;
    let root = if path.starts_with(SYSTEM) { SYSTEM } else { "" };
    for library in libraries(from) {
        let place = format!("{root}{library}");
        archive.copy(place.trim_start_matches('/'), Path::new(&library))?;
    }
    Ok(())
}

/// A program without shared libraries makes `ldd` fail.
fn libraries(program: &Path) -> Vec<String> {
    let listed = Command::new("ldd").arg(program).output().map(|output| output.stdout);
    let listed = String::from_utf8_lossy(&listed.unwrap_or_default()).into_owned();
    listed.split_whitespace().filter(|word| word.starts_with('/')).map(str::to_owned).collect()
}

/// A copy without debug information, which is most of a test build.
fn stripped(program: &Path, beside: &Path) -> Result<PathBuf> {
    let copy = beside.with_extension("stripped");
    process::run(Command::new("strip").arg("-o").arg(&copy).arg(program))?;
    Ok(copy)
}

fn which(name: &str) -> Result<PathBuf> {
    let mut sh = Command::new("sh");
    let found = process::output(sh.args(["-c", "command -v \"$1\"", "sh", name]));
    Ok(found.with_context(|| format!("there is no {name} here"))?.trim().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_arrives_word_for_word() {
        let command = ["sh", "-c", "echo 'a b' $?"].map(str::to_owned);
        assert_eq!(
            script(Root::Shared, &command),
            "mount --make-rshared / || exit\nsh -c 'echo '\\''a b'\\'' $?'\n"
        );
    }
}
