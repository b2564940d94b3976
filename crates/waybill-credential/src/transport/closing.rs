//! Connections that can be closed from outside, all at once.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::future::BoxFuture;
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use tokio::net::TcpStream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tower::{BoxError, Service};

use crate::Route;

/// Closes the connections that were made with it.
#[derive(Clone, Debug, Default)]
pub(super) struct Closing(Arc<CancellationToken>);

impl Closing {
    pub(super) fn close(&self) {
        self.0.cancel();
    }
}

/// Makes connections that end with a [`Closing`].
#[derive(Clone)]
pub(super) struct ClosingConnector {
    inner: HttpsConnector<Route>,
    closing: Closing,
}

impl ClosingConnector {
    pub(super) fn new(inner: HttpsConnector<Route>, closing: Closing) -> Self {
        Self { inner, closing }
    }
}

impl Service<Uri> for ClosingConnector {
    type Response = ClosingStream;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<ClosingStream, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = self.inner.call(uri);
        let closed = self.closing.0.as_ref().clone().cancelled_owned();
        Box::pin(
            async move { Ok(ClosingStream { inner: connecting.await?, closed: Box::pin(closed) }) },
        )
    }
}

/// A connection that fails to read once it is closed, which ends it.
pub(super) struct ClosingStream {
    inner: MaybeHttpsStream<MaybeHttpsStream<TokioIo<TcpStream>>>,
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Read for ClosingStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if self.closed.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

impl Write for ClosingStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, slices)
    }
}

impl Connection for ClosingStream {
    fn connected(&self) -> Connected {
        self.inner.connected()
    }
}
