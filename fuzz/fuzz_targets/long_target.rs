//! The first line of a connection, which is read before anybody knows who sends it.
//!
//! Whatever arrives, in whatever pieces: either it goes on as it came, or the query of its first line is
//! taken out, and line and query together are what came.

#![no_main]

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use http::Request;
use libfuzzer_sys::fuzz_target;
use tokio::io::{AsyncRead, ReadBuf};
use waybill_stream::long_target::{LongTargetIo, REQUEST_LINE_LIMIT, query};

/// More than a reader keeps of one line.
const LONGEST: u32 = 2 * REQUEST_LINE_LIMIT as u32;

/// A connection that gives as much at once as it is told.
struct Pieces {
    left: Vec<u8>,
    sizes: Vec<u16>,
}

impl AsyncRead for Pieces {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let size = self.sizes.pop().map_or(usize::MAX, |size| usize::from(size).max(1));
        let size = size.min(self.left.len()).min(buffer.remaining());
        buffer.put_slice(&self.left[..size]);
        self.left.drain(..size);
        Poll::Ready(Ok(()))
    }
}

fuzz_target!(|input: (Vec<u8>, u8, u32, Vec<u8>, Vec<u16>)| {
    let (mut sent, filler, count, tail, sizes) = input;
    sent.resize(sent.len() + (count % LONGEST) as usize, filler);
    sent.extend_from_slice(&tail);
    let (mut connection, slot) = LongTargetIo::new(Pieces { left: sent.clone(), sizes });
    let mut context = Context::from_waker(Waker::noop());
    let (mut passed, mut room) = (Vec::new(), vec![0; 64 * 1024]);
    loop {
        let mut buffer = ReadBuf::new(&mut room);
        let read = Pin::new(&mut connection).poll_read(&mut context, &mut buffer);
        assert!(matches!(read, Poll::Ready(Ok(()))));
        match buffer.filled() {
            [] => break,
            bytes => passed.extend_from_slice(bytes),
        }
    }
    let mut request = Request::new(());
    slot.attach(&mut request);
    let query = query(&request);
    if query.is_empty() && passed.len() >= sent.len() {
        assert_eq!(passed, sent);
        return;
    }
    // Method, a blank, the path, and here the query was.
    let blank = passed.iter().position(|byte| *byte == b' ').unwrap();
    let end = blank + 1 + passed[blank + 1..].iter().position(|byte| *byte == b' ').unwrap();
    let whole = [&passed[..end], b"?", query.as_bytes(), &passed[end..]].concat();
    assert_eq!(whole, sent);
});
