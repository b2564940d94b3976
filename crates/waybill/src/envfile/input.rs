//! Where an env file comes from: a path or standard input.

use std::{
    convert::Infallible,
    fmt,
    fs::{self, File, Permissions},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    str::FromStr,
};

use anyhow::{Context, Result, bail};
use waybill_core::{env::limits::FILE_BYTES, secret::SecretBytes};

/// A file, or `-` for standard input.
#[derive(Clone, Debug)]
pub(super) enum Input {
    File(PathBuf),
    Stdin,
}

impl Input {
    /// Reads one byte more than an env file may have: enough to see that it has too many.
    pub(super) fn read(&self) -> Result<SecretBytes> {
        match self {
            Self::File(path) => {
                let file = File::open(path).with_context(|| format!("opening {self}"))?;
                read_limited(file)
            }
            Self::Stdin => read_limited(io::stdin().lock()),
        }
        .with_context(|| format!("reading {self}"))
    }

    /// Puts `content` in the place of the file, all of it or nothing, with the same permissions.
    pub(super) fn replace(&self, content: &[u8]) -> Result<()> {
        let Self::File(path) = self else {
            bail!("--write needs a file, standard input cannot be replaced");
        };
        replace_file(path, content).with_context(|| format!("writing {self}"))
    }

    /// Whether there is something to read; standard input always counts.
    pub(super) fn exists(&self) -> bool {
        match self {
            Self::File(path) => path.exists(),
            Self::Stdin => true,
        }
    }
}

impl From<&str> for Input {
    fn from(argument: &str) -> Self {
        if argument == "-" { Self::Stdin } else { Self::File(argument.into()) }
    }
}

impl FromStr for Input {
    type Err = Infallible;

    fn from_str(argument: &str) -> Result<Self, Infallible> {
        Ok(argument.into())
    }
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Stdin => f.write_str("standard input"),
        }
    }
}

fn read_limited(reader: impl Read) -> Result<SecretBytes> {
    let limit = FILE_BYTES + 1;
    // Room for all of it at once: a vector that grows leaves copies behind.
    let mut bytes = Vec::with_capacity(limit + 1);
    let result = reader.take(limit as u64).read_to_end(&mut bytes);
    let bytes = SecretBytes::from(bytes);
    result?;
    Ok(bytes)
}

/// Makes a file with `content`, for its owner only, or replaces the one that is there.
pub(super) fn write_file(path: &Path, content: &[u8]) -> Result<()> {
    let written = match path.exists() {
        true => replace_file(path, content),
        false => put(path, content, None),
    };
    written.with_context(|| format!("writing {}", path.display()))
}

fn replace_file(path: &Path, content: &[u8]) -> Result<()> {
    // Through a link, the file behind it is replaced and the link stays.
    let path = fs::canonicalize(path)?;
    let permissions = fs::metadata(&path)?.permissions();
    put(&path, content, Some(permissions))
}

/// Writes beside `path` first: readers see all of it, or what was there before.
fn put(path: &Path, content: &[u8], permissions: Option<Permissions>) -> Result<()> {
    let mut name = path.file_name().context("not a file")?.to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(name);
    let written = write_new(&temporary, content)
        .and_then(|()| match permissions {
            Some(permissions) => fs::set_permissions(&temporary, permissions),
            None => Ok(()),
        })
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    Ok(written?)
}

fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;

    let mut file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}
