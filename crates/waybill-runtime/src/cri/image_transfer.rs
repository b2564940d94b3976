//! Archives of images in pieces, over the runtime's socket: what CRI has no call for.

use std::io::{self, Read, Write};

use bytes::{Buf, Bytes};
use futures_util::{StreamExt, stream, stream::BoxStream};
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;
use tonic::{Request, Response, Status, Streaming};
use waybill_proto::runtime::{
    ExportRequest, ExportResponse, ImportRequest, ImportResponse, ImportedImage, images_server,
};

use super::{error::CriError, image::settle, tracked};
use crate::{
    blocking::on_a_thread,
    image::{ImageError, Images},
};

/// How many pieces may wait for the disk or for the client.
const WAITING: usize = 4;

/// The size of a piece that we send.
const PIECE: usize = 256 << 10;

/// Takes and gives archives.
pub(crate) struct ImageTransfer {
    images: Images,
    tasks: TaskTracker,
}

impl ImageTransfer {
    pub(crate) fn new(images: Images, tasks: TaskTracker) -> Self {
        Self { images, tasks }
    }
}

#[tonic::async_trait]
impl images_server::Images for ImageTransfer {
    type ExportStream = BoxStream<'static, Result<ExportResponse, Status>>;

    async fn import(
        &self,
        request: Request<Streaming<ImportRequest>>,
    ) -> Result<Response<ImportResponse>, Status> {
        let mut pieces = request.into_inner();
        let Some(first) = pieces.message().await? else {
            return Err(Status::invalid_argument("the archive is missing"));
        };
        let (sender, receiver) = mpsc::channel(WAITING);
        let images = self.images.clone();
        let work = on_a_thread(tracked(&self.tasks, move || {
            let name = Some(first.name.as_str()).filter(|name| !name.is_empty());
            let reader = Pieces { receiver, current: Bytes::from(first.data) };
            let imported = images.import(reader, name)?;
            if first.pinned {
                for image in &imported {
                    images.set_pinned(&image.id.to_string(), true)?;
                }
            }
            Ok::<_, ImageError>(imported)
        }));
        let feed = feed(pieces, sender);
        let (imported, ()) = tokio::join!(work, feed);
        let images = imported.map_err(CriError::from)??;
        settle(&self.images, &self.tasks);
        let images = images.into_iter().map(|image| ImportedImage {
            id: image.id.to_string(),
            names: image.tags,
            size: image.size,
        });
        Ok(Response::new(ImportResponse { images: images.collect() }))
    }

    async fn export(
        &self,
        request: Request<ExportRequest>,
    ) -> Result<Response<Self::ExportStream>, Status> {
        let wanted = request.into_inner().image;
        // Whatever is wrong with the name is told before the first piece.
        self.images.resolve(&wanted)?;
        let (sender, receiver) = mpsc::channel(WAITING);
        let images = self.images.clone();
        let pipe = Sender(sender.clone());
        let work = tracked(&self.tasks, move || {
            images.export(&[wanted], io::BufWriter::with_capacity(PIECE, pipe))
        });
        self.tasks.spawn(async move {
            let exported = match on_a_thread(work).await {
                Ok(exported) => exported,
                Err(error) => Err(error.into()),
            };
            if let Err(error) = exported {
                // A client that went away does not want to know.
                let _ = sender.send(Err(error.into())).await;
            }
        });
        let pieces = stream::unfold(receiver, async |mut receiver| {
            receiver.recv().await.map(|piece| (piece, receiver))
        });
        Ok(Response::new(pieces.boxed()))
    }
}

/// Hands on what the client sends, until it ends or nobody wants more.
async fn feed(mut pieces: Streaming<ImportRequest>, sender: mpsc::Sender<io::Result<Vec<u8>>>) {
    loop {
        let piece = match pieces.message().await {
            Ok(Some(request)) => Ok(request.data),
            Ok(None) => return,
            // Half an archive must not pass for a whole one.
            Err(status) => Err(io::Error::other(format!("the client ended early: {status}"))),
        };
        let is_last = piece.is_err();
        if sender.send(piece).await.is_err() || is_last {
            return;
        }
    }
}

/// The archive as a reader.
struct Pieces {
    receiver: mpsc::Receiver<io::Result<Vec<u8>>>,
    current: Bytes,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            match self.receiver.blocking_recv() {
                None => return Ok(0),
                Some(piece) => self.current = Bytes::from(piece?),
            }
        }
        let count = self.current.len().min(buffer.len());
        self.current.split_to(count).copy_to_slice(buffer.get_mut(..count).unwrap_or_default());
        Ok(count)
    }
}

/// The client as a writer.
struct Sender(mpsc::Sender<Result<ExportResponse, Status>>);

impl Write for Sender {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // What is larger than the buffer above comes as it is.
        let piece = bytes.get(..PIECE).unwrap_or(bytes);
        let response = ExportResponse { data: piece.to_vec() };
        let sent = self.0.blocking_send(Ok(response));
        sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
