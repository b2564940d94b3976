//! Request lines that are longer than `http::Uri` can hold.
//!
//! An exec request may carry 32 KiB of variables, which percent-encoding triples, and so 128 KiB must
//! pass (EXEC-40). `http::Uri` ends at 65,534 bytes, and hyper answers 414 to anything longer,
//! whatever its buffers. So the long query travels around hyper: [`LongTargetIo`] cuts it out before
//! a server parses the line, and [`TargetWriter`] puts it in after a client wrote the line. To be
//! removed when `http` can hold a longer URI.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes, BytesMut};
use http::{Method, Request};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The longest request line that is read; hyper refuses a longer one with 414.
pub const REQUEST_LINE_LIMIT: usize = 192 * 1024;

/// `max_buf_size` for HTTP/1 on both sides: the line and as much again for headers. It must exceed
/// [`REQUEST_LINE_LIMIT`], or a line that is too long gives 431 instead of 414.
pub const HTTP1_BUFFER: usize = 2 * REQUEST_LINE_LIMIT;

/// A server's connection, whose first request may have a long query.
///
/// Only the first: exec clients open a connection for each session, and later requests could not be
/// found without parsing the bodies between them.
pub struct LongTargetIo<S> {
    inner: S,
    head: Head,
    slot: TargetSlot,
}

impl<S> LongTargetIo<S> {
    /// Wraps a connection before hyper sees it; the service must [`TargetSlot::attach`].
    pub fn new(inner: S) -> (Self, TargetSlot) {
        let slot = TargetSlot::default();
        (Self { inner, head: Head::Reading(BytesMut::new()), slot: slot.clone() }, slot)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for LongTargetIo<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            match &mut this.head {
                Head::Passed => return Pin::new(&mut this.inner).poll_read(cx, buffer),
                Head::Replaying(bytes) if bytes.is_empty() => this.head = Head::Passed,
                Head::Replaying(bytes) => {
                    let count = bytes.len().min(buffer.remaining());
                    buffer.put_slice(&bytes.split_to(count));
                    return Poll::Ready(Ok(()));
                }
                Head::Reading(read) => {
                    let mut chunk = [0; CHUNK];
                    let mut chunk = ReadBuf::new(&mut chunk);
                    ready!(Pin::new(&mut this.inner).poll_read(cx, &mut chunk))?;
                    let fresh = chunk.filled();
                    let line_end = fresh.iter().position(|byte| *byte == b'\n');
                    let line_end = line_end.map(|at| read.len() + at);
                    read.extend_from_slice(fresh);
                    if line_end.is_some() || fresh.is_empty() || read.len() > REQUEST_LINE_LIMIT {
                        let read = std::mem::take(read).freeze();
                        this.head = Head::Replaying(this.slot.shorten(read, line_end));
                    }
                }
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for LongTargetIo<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// Hands the long target of a connection's first request to the service.
#[derive(Clone, Default)]
pub struct TargetSlot(Arc<Mutex<Option<RequestTarget>>>);

impl TargetSlot {
    /// Gives `request` its true target; to be called first for every request of the connection.
    pub fn attach<B>(&self, request: &mut Request<B>) {
        let target = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(target) = target {
            request.extensions_mut().insert(target);
        }
    }

    /// Cuts the query out of a line that is too long for hyper; `line_end` is its line feed.
    fn shorten(&self, read: Bytes, line_end: Option<usize>) -> Bytes {
        let Some((target, short)) = line_end.and_then(|end| cut(&read, end)) else {
            return read;
        };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(target);
        short
    }
}

/// The path and query that a client sent, where `Uri` cannot hold it. It has no `Debug`, for the
/// query may hold values of variables.
#[derive(Clone)]
pub struct RequestTarget(Arc<str>);

/// The query of `request`, however long; empty if there is none.
pub fn query<B>(request: &Request<B>) -> &str {
    match request.extensions().get::<RequestTarget>() {
        Some(target) => target.0.split_once('?').map_or("", |(_, query)| query),
        None => request.uri().query().unwrap_or_default(),
    }
}

/// A client's connection, which sends one request with a target of any length.
///
/// The request is to be made with the target `/`.
pub struct TargetWriter<S> {
    inner: S,
    /// What hyper will write and nobody shall see.
    placeholder: Bytes,
    /// What is written instead.
    line: Bytes,
}

impl<S> TargetWriter<S> {
    /// Wraps a connection before hyper sees it; the one request is `method target`.
    pub fn new(inner: S, method: &Method, target: &str) -> Self {
        let placeholder = Bytes::from(format!("{method} / "));
        Self { inner, placeholder, line: Bytes::from(format!("{method} {target} ")) }
    }
}

impl<S: AsyncWrite + Unpin> TargetWriter<S> {
    fn poll_line(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.placeholder.is_empty() && !self.line.is_empty() {
            let count = ready!(Pin::new(&mut self.inner).poll_write(cx, &self.line))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.line.advance(count);
        }
        Poll::Ready(Ok(()))
    }

    /// Takes the part of `bytes` that belongs to the placeholder.
    fn skip(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(self.placeholder.len());
        let skipped = self.placeholder.split_to(count);
        if bytes.starts_with(&skipped) {
            Ok(count)
        } else {
            Err(io::Error::other("the request does not begin with the placeholder"))
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TargetWriter<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if !self.placeholder.is_empty() {
            return Poll::Ready(self.skip(bytes));
        }
        ready!(self.poll_line(cx))?;
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_line(cx))?;
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_line(cx))?;
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TargetWriter<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

enum Head {
    /// The first line is not complete.
    Reading(BytesMut),
    /// It is, and the reader gets what was read.
    Replaying(Bytes),
    Passed,
}

const CHUNK: usize = 8 * 1024;

/// The longest `http::Uri`, from its source (version 1.5).
const URI_LIMIT: usize = 65_534;

/// The true target, and the bytes without its query; `None` if hyper can judge the line itself.
fn cut(read: &Bytes, line_end: usize) -> Option<(RequestTarget, Bytes)> {
    let line = read.get(..line_end)?;
    let mut parts = line.splitn(3, |byte| *byte == b' ');
    let (method, target, _) = (parts.next()?, parts.next()?, parts.next()?);
    let long = target.len() > URI_LIMIT && line_end <= REQUEST_LINE_LIMIT;
    if !long || !target.iter().all(u8::is_ascii_graphic) {
        return None;
    }
    let text = str::from_utf8(target).ok()?;
    let (path, _) = text.split_once('?')?;
    let mut short = BytesMut::from(method);
    short.extend_from_slice(b" ");
    short.extend_from_slice(path.as_bytes());
    short.extend_from_slice(read.get(method.len() + 1 + target.len()..)?);
    Some((RequestTarget(text.into()), short.freeze()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// A connection that gives as much at once as it is told.
    struct Pieces<'a> {
        left: &'a [u8],
        sizes: Vec<usize>,
    }

    impl AsyncRead for Pieces<'_> {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let size = self.sizes.pop().unwrap_or(usize::MAX).max(1);
            let size = size.min(self.left.len()).min(buffer.remaining());
            buffer.put_slice(&self.left[..size]);
            self.left = &self.left[size..];
            Poll::Ready(Ok(()))
        }
    }

    proptest! {
        /// What the fuzz target `long_target` tries at length: this reader works before anybody is known.
        #[test]
        fn nothing_is_lost_or_added_in_whatever_pieces_it_comes(
            head in "(GET|POST|[A-Z ?/\r\n]{0,9})( /[a-z?/ ]{0,12})?\\??",
            count in prop_oneof![0..40_usize, 65_000..66_000_usize, 190_000..200_000_usize],
            tail in "[a-z?& ]{0,8}( HTTP/1\\.1\r\n)?[a-z\r\n]{0,20}",
            sizes in proptest::collection::vec(0..20_000_usize, 0..20),
        ) {
            let sent = format!("{head}{}{tail}", "q".repeat(count));
            let (mut io, slot) = LongTargetIo::new(Pieces { left: sent.as_bytes(), sizes });
            let mut context = Context::from_waker(std::task::Waker::noop());
            let (mut passed, mut room) = (Vec::new(), vec![0; CHUNK]);
            loop {
                let mut buffer = ReadBuf::new(&mut room);
                let read = Pin::new(&mut io).poll_read(&mut context, &mut buffer);
                prop_assert!(matches!(read, Poll::Ready(Ok(()))));
                if buffer.filled().is_empty() {
                    break;
                }
                passed.extend_from_slice(buffer.filled());
            }
            let passed = String::from_utf8(passed).unwrap();
            let mut request = Request::new(());
            slot.attach(&mut request);
            let whole = match request.extensions().get::<RequestTarget>() {
                None => passed,
                Some(_) => {
                    let parts: Vec<_> = passed.splitn(3, ' ').collect();
                    format!("{} {}?{} {}", parts[0], parts[1], query(&request), parts[2])
                }
            };
            prop_assert!(whole == sent);
        }
    }

    /// What hyper would read, and the query that the service would see.
    async fn pass(sent: &str) -> (String, Option<String>) {
        let (mut io, slot) = LongTargetIo::new(sent.as_bytes());
        let mut read = String::new();
        io.read_to_string(&mut read).await.unwrap();
        let mut request = Request::new(());
        slot.attach(&mut request);
        let long = request.extensions().get::<RequestTarget>().is_some();
        (read, long.then(|| query(&request).to_owned()))
    }

    /// EXEC-40
    #[tokio::test]
    async fn a_long_query_goes_around_the_parser() {
        let long = "e".repeat(128 * 1024);
        let rest = "HTTP/1.1\r\nhost: x\r\n\r\nbody";
        let found = pass(&format!("GET /exec?{long} {rest}")).await;
        assert_eq!(found, (format!("GET /exec {rest}"), Some(long)));
    }

    #[tokio::test]
    async fn what_hyper_can_judge_is_left_alone() {
        let limit = "p".repeat(URI_LIMIT);
        let over = "e".repeat(REQUEST_LINE_LIMIT + CHUNK);
        for sent in [
            "",
            "GET",
            "GET /a?b HTTP/1.1\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            "\r\n\r\n",
            &format!("GET {limit} HTTP/1.1\r\n"),
            &format!("GET /{limit} HTTP/1.1\r\n"),
            &format!("GET /?{over} HTTP/1.1\r\n"),
            &format!("GET /?\t{limit} HTTP/1.1\r\n"),
            &format!("GET /?{limit}\r\n"),
        ] {
            assert_eq!(pass(sent).await, (sent.to_owned(), None));
        }
    }

    #[tokio::test]
    async fn a_client_writes_the_true_target_however_the_line_is_cut() {
        for size in [1, 3, 5, 100] {
            let mut wire = Vec::new();
            let mut writer = TargetWriter::new(&mut wire, &Method::GET, "/exec?a=b");
            for part in b"GET / HTTP/1.1\r\n\r\nGET / ".chunks(size) {
                writer.write_all(part).await.unwrap();
            }
            writer.flush().await.unwrap();
            assert_eq!(wire, b"GET /exec?a=b HTTP/1.1\r\n\r\nGET / ");
        }
    }

    #[tokio::test]
    async fn a_request_without_the_placeholder_is_not_sent() {
        let mut wire = Vec::new();
        let mut writer = TargetWriter::new(&mut wire, &Method::GET, "/exec");
        writer.write_all(b"POST / HTTP/1.1\r\n").await.unwrap_err();
        assert!(wire.is_empty());
    }
}
