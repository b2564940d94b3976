//! `waybill image`: the images of a runtime, over its socket.
//!
//! Lists, pulls and removals are CRI and work with any runtime; archives go through a service of
//! our own.

mod archive;
mod built_in;
mod client;
mod table;

use std::{
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use clap::{Subcommand, ValueEnum};
use serde_json::json;
use waybill_core::chain::Chain;
use waybill_proto::cri::Image;

use self::client::Runtime;
use crate::{
    Outcome, builtin::BuiltIn, runtime::parse_socket, terminal::plain_lines, trace::runtime_socket,
};

/// Import, list, remove, export and pull images of a runtime.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,

    /// Socket of the runtime; without it that of `waybill up`, or unix:///run/waybill/runtime.sock.
    #[arg(long, global = true, value_name = "unix:///PATH", value_parser = parse_socket)]
    runtime: Option<PathBuf>,

    /// State directory of `waybill up`, whose runtime is meant without --runtime.
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        env = "WAYBILL_STATE_DIR",
        default_value = "/var/lib/waybill"
    )]
    state_dir: PathBuf,
}

const AFTER_HELP: &str = "\
Examples:
  docker save busybox | waybill image import -
  waybill image import app.tar --name example.com/team/app:1.0
  waybill image ls
  waybill image export busybox --output busybox.tar
  waybill image pull --username me --password-stdin example.com/team/app:1.0 < password
  waybill image rm busybox

Names are those of docker: busybox means docker.io/library/busybox:latest.";

#[derive(Subcommand)]
enum Command {
    /// Add the images of an archive: an OCI image layout, or the output of `docker save`.
    ///
    /// Plain or compressed with gzip or zstd. Everything is checked against its digest.
    Import {
        /// The archive, or the directory of an OCI image layout; - is standard input.
        #[arg(value_name = "FILE")]
        archive: PathBuf,

        /// Name to give, in place of those in the archive, which must hold one image.
        #[arg(long, value_name = "NAME")]
        name: Option<String>,

        /// Keep the images even if nobody uses them and the disk is full: no registry has them.
        #[arg(long)]
        pin: bool,
    },
    /// Make an image from programs of this machine and add it; `waybill up` does so by itself.
    ///
    /// For a first pod where no registry is in reach. Our own runtime only, as with every archive.
    BuiltIn {
        /// Which.
        #[arg(value_name = "IMAGE")]
        image: BuiltIn,

        /// File that remembers which programs the image was made of: nothing is done if they are the same.
        #[arg(long, value_name = "FILE")]
        mark: Option<PathBuf>,
    },
    /// List images.
    Ls {
        /// Only this one: a name, an id or the beginning of an id.
        #[arg(value_name = "IMAGE")]
        image: Option<String>,

        /// How to print them.
        #[arg(short, long, value_name = "FORMAT", default_value = "table")]
        output: Format,
    },
    /// Remove images with all of their names.
    Rm {
        /// Names, ids or beginnings of ids.
        #[arg(required = true, value_name = "IMAGE")]
        images: Vec<String>,
    },
    /// Write an image as an archive that docker, containerd and podman can load too.
    Export {
        /// A name, an id or the beginning of an id.
        #[arg(value_name = "IMAGE")]
        image: String,

        /// File to write; standard output by default.
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Fetch an image from its registry.
    Pull {
        /// The name.
        #[arg(value_name = "IMAGE")]
        image: String,

        /// User of the registry.
        #[arg(long, value_name = "NAME", requires = "password_stdin")]
        username: Option<String>,

        /// Read the user's password from standard input.
        #[arg(long, requires = "username")]
        password_stdin: bool,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Json,
    Table,
}

pub(crate) fn run(args: Args) -> Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let socket = args.runtime.unwrap_or_else(|| runtime_socket(&args.state_dir));
        let socket = Runtime::connect(&socket).await?;
        match args.command {
            Command::Import { archive, name, pin } => import(socket, archive, name, pin).await,
            Command::BuiltIn { image, mark } => {
                built_in::import(socket, image, mark.as_deref()).await?;
                writeln!(io::stdout(), "{}", image.name())?;
                Ok(Outcome::Success)
            }
            Command::Ls { image, output } => list(socket, image, output).await,
            Command::Rm { images } => remove(socket, images).await,
            Command::Export { image, output } => archive::export(socket, image, output).await,
            Command::Pull { image, username, .. } => pull(socket, image, username).await,
        }
    })
}

async fn import(
    runtime: Runtime,
    archive: PathBuf,
    name: Option<String>,
    pinned: bool,
) -> Result<Outcome> {
    for image in archive::import(runtime, archive, name, pinned).await? {
        let names = image.names.join(" ");
        writeln!(io::stdout(), "{} {names}", image.id.trim())?;
    }
    Ok(Outcome::Success)
}

/// Gives an archive to the runtime at `socket`. Its images stay until somebody removes them by name.
pub(crate) async fn import_archive(socket: &Path, archive: &[u8]) -> Result<()> {
    archive::import_bytes(&Runtime::connect(socket).await?, archive, None).await
}

async fn list(mut runtime: Runtime, image: Option<String>, format: Format) -> Result<Outcome> {
    let mut images = runtime.list(image).await?;
    images.sort_by(|one, other| (&one.repo_tags, &one.id).cmp(&(&other.repo_tags, &other.id)));
    let mut output = io::stdout().lock();
    match format {
        Format::Table => output.write_all(table::table(&images).as_bytes())?,
        Format::Json => {
            let images: Vec<_> = images.iter().map(to_json).collect();
            serde_json::to_writer_pretty(&mut output, &json!({ "images": images }))?;
            writeln!(output)?;
        }
    }
    Ok(Outcome::Success)
}

async fn remove(mut runtime: Runtime, images: Vec<String>) -> Result<Outcome> {
    let mut outcome = Outcome::Success;
    for image in images {
        match runtime.remove(&image).await {
            Ok(()) => writeln!(io::stdout(), "{image}")?,
            Err(error) => {
                writeln!(
                    io::stderr(),
                    "error: {image}: {}",
                    plain_lines(&Chain(error.as_ref()).to_string())
                )?;
                outcome = Outcome::Failure;
            }
        }
    }
    Ok(outcome)
}

async fn pull(mut runtime: Runtime, image: String, username: Option<String>) -> Result<Outcome> {
    let credentials = match username {
        Some(name) => Some((name, read_password()?)),
        None => None,
    };
    let id = runtime.pull(image, credentials).await?;
    writeln!(io::stdout(), "{id}")?;
    Ok(Outcome::Success)
}

/// A password as `docker login` takes it: without the newline at its end.
fn read_password() -> Result<String> {
    /// No password is that long; a file given by mistake is.
    const LONGEST: u64 = 64 << 10;
    let mut password = String::new();
    let read = io::stdin().lock().take(LONGEST).read_to_string(&mut password);
    read.context("cannot read the password from standard input")?;
    let end = password.trim_end_matches(['\r', '\n']).len();
    password.truncate(end);
    if password.is_empty() {
        bail!("there is no password on standard input");
    }
    Ok(password)
}

/// In the form of crictl, where large numbers are text.
fn to_json(image: &Image) -> serde_json::Value {
    json!({
        "id": image.id,
        "repoTags": image.repo_tags,
        "repoDigests": image.repo_digests,
        "size": image.size.to_string(),
        "username": image.username,
        "uid": image.uid.map(|uid| json!({ "value": uid.value.to_string() })),
        "pinned": image.pinned,
    })
}
