//! Archives, on their way to a runtime and from it.

use std::{
    fs::{self, File},
    io::{self, IsTerminal, Read, Write},
    path::{Path, PathBuf},
    thread,
};

use anyhow::{Context, Result, bail};
use futures_util::stream;
use tokio::sync::{mpsc, oneshot};
use waybill_proto::runtime::{ExportRequest, ImportRequest, ImportedImage};

use super::client::{Runtime, told};
use crate::Outcome;

/// The size of a piece that we send.
const PIECE: usize = 256 << 10;
/// How many may wait for the runtime.
const WAITING: usize = 4;

type Pieces = mpsc::Sender<ImportRequest>;

/// Sends an archive; returns the images in it.
pub(super) async fn import(
    runtime: Runtime,
    archive: PathBuf,
    name: Option<String>,
) -> Result<Vec<ImportedImage>> {
    let source =
        Source::open(&archive).with_context(|| format!("cannot read {}", archive.display()))?;
    let (pieces, receiver) = mpsc::channel(WAITING);
    let (failed, failure) = oneshot::channel();
    let first = ImportRequest { name: name.unwrap_or_default(), data: Vec::new() };
    pieces.send(first).await.context("nobody sends the archive")?;
    // A thread and not a task: nobody can end a read from standard input, and nobody waits for it.
    thread::spawn(move || {
        let mut writer = Sending(pieces);
        if let Err(error) = source.copy_to(&mut writer) {
            // The pieces go along: they must not end before the call is given up, or half an
            // archive would look whole.
            let _ = failed.send((error, writer));
        }
    });
    let requests = stream::unfold(receiver, async |mut receiver| {
        receiver.recv().await.map(|piece| (piece, receiver))
    });
    let mut client = runtime.archives();
    tokio::select! {
        imported = client.import(requests) => Ok(imported.map_err(told)?.into_inner().images),
        Ok((error, _pieces)) = failure => {
            Err(error).with_context(|| format!("cannot read {}", archive.display()))
        }
    }
}

/// Sends an archive that is in memory.
pub(super) async fn import_bytes(
    runtime: &Runtime,
    archive: &[u8],
    name: Option<String>,
) -> Result<()> {
    let first = ImportRequest { name: name.unwrap_or_default(), data: Vec::new() };
    let pieces = archive
        .chunks(PIECE)
        .map(|piece| ImportRequest { name: String::new(), data: piece.to_vec() });
    let requests: Vec<_> = [first].into_iter().chain(pieces).collect();
    runtime.archives().import(stream::iter(requests)).await.map_err(told)?;
    Ok(())
}

enum Source {
    Standard,
    File(File),
    Directory(PathBuf),
}

impl Source {
    fn open(path: &Path) -> io::Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::Standard);
        }
        if !fs::metadata(path)?.is_dir() {
            return File::open(path).map(Self::File);
        }
        if !path.join("index.json").is_file() {
            let text = "this directory is no OCI image layout: it has no index.json";
            return Err(io::Error::other(text));
        }
        Ok(Self::Directory(path.to_owned()))
    }

    fn copy_to(self, writer: &mut Sending) -> io::Result<()> {
        match self {
            Self::Standard => copy(io::stdin().lock(), writer),
            Self::File(file) => copy(file, writer),
            Self::Directory(path) => {
                let mut archive = tar::Builder::new(io::BufWriter::with_capacity(PIECE, writer));
                archive.append_dir_all(".", path)?;
                archive.into_inner()?.flush()
            }
        }
    }
}

fn copy(mut from: impl Read, to: &mut Sending) -> io::Result<()> {
    let mut buffer = vec![0; PIECE];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => to.write_all(buffer.get(..count).unwrap_or_default())?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The call as a writer.
struct Sending(Pieces);

impl Write for Sending {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = bytes.get(..PIECE).unwrap_or(bytes);
        let request = ImportRequest { name: String::new(), data: piece.to_vec() };
        // The runtime has answered already; what it said is what counts.
        self.0.blocking_send(request).map_err(|_| io::ErrorKind::BrokenPipe)?;
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes an image to a file, which appears when it is whole, or to standard output.
pub(super) async fn export(
    runtime: Runtime,
    image: String,
    output: Option<PathBuf>,
) -> Result<Outcome> {
    let Some(path) = output else {
        if io::stdout().is_terminal() {
            bail!("an archive is not for a terminal; name a file with --output, or use a pipe");
        }
        receive(runtime, image, &mut io::stdout().lock()).await?;
        return Ok(Outcome::Success);
    };
    let mut partial = path.clone().into_os_string();
    partial.push(".partial");
    let written = write_file(runtime, image, Path::new(&partial), &path).await;
    if written.is_err() {
        // It may not even be there.
        let _ = fs::remove_file(&partial);
    }
    written.map(|()| Outcome::Success)
}

async fn write_file(runtime: Runtime, image: String, partial: &Path, path: &Path) -> Result<()> {
    let doing = || format!("cannot write {}", path.display());
    let mut file = File::create(partial).with_context(doing)?;
    receive(runtime, image, &mut file).await?;
    fs::rename(partial, path).with_context(doing)
}

async fn receive(runtime: Runtime, image: String, to: &mut impl Write) -> Result<()> {
    let request = ExportRequest { image };
    let mut pieces = runtime.archives().export(request).await.map_err(told)?.into_inner();
    while let Some(piece) = pieces.message().await.map_err(told)? {
        to.write_all(&piece.data)?;
    }
    Ok(to.flush()?)
}
