//! What ran in the sessions of this node: the collector's record, passed on byte by byte.
//!
//! The record is for those whom the API server lets read it, and who are then on its audit log. So nobody else is answered, whatever
//! rights they have: neither who comes to the node itself nor who comes by `nodes/proxy`.

use std::{io, path::Path, time::Duration};

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, Request, Response, header::CONTENT_TYPE};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::UnixStream,
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use waybill_api::trace::{TRACE_BUSY, TRACE_GRANTED, TRACE_HEADER, TRACE_REFUSED, TraceOptions};
use waybill_stream::long_target;

use super::{
    Service,
    answer::{Answer, Refusal},
    authn::User,
    authz::NODE_CLIENTS,
};

/// The collector says at once whether it answers.
const PATIENCE: Duration = Duration::from_secs(10);

/// Its first line is a word or a sentence.
const FIRST_LINE: u64 = 4096;

/// So much is passed on at once.
const PIECE: usize = 64 << 10;

impl Service {
    /// Passes on what the collector answers.
    pub(super) async fn trace(
        &self,
        user: &User,
        request: &Request<Incoming>,
    ) -> Result<Answer, Refusal> {
        let is_api_server = user.groups.iter().any(|group| group == NODE_CLIENTS);
        if !is_api_server || !request.headers().contains_key(TRACE_HEADER) {
            return Err(Refusal::TraceElsewhere);
        }
        let options = TraceOptions::from_query(long_target::query(request))
            .map_err(|error| Refusal::BadRequest(error.to_string()))?;
        let Some(socket) = &self.collector else { return Err(Refusal::NoCollector) };
        let asked = timeout(PATIENCE, ask(socket, &options)).await;
        let (first, connection) = match asked {
            Ok(Ok(answered)) => answered,
            Ok(Err(error)) => {
                tracing::debug!(%error, socket = %socket.display(), "the collector does not answer");
                return Err(Refusal::NoCollector);
            }
            Err(_) => return Err(Refusal::NoCollector),
        };
        if let Some(reason) = first.strip_prefix(TRACE_BUSY) {
            return Err(Refusal::Busy(reason.to_owned()));
        }
        if let Some(reason) = first.strip_prefix(TRACE_REFUSED) {
            return Err(Refusal::BadRequest(reason.to_owned()));
        }
        if first != TRACE_GRANTED {
            return Err(Refusal::NoCollector);
        }
        Ok(pass_on(connection, self.stop.clone()))
    }
}

/// Asks, and reads the first line of the answer.
async fn ask(socket: &Path, options: &TraceOptions) -> io::Result<(String, BufReader<UnixStream>)> {
    let mut connection = UnixStream::connect(socket).await?;
    let owner = connection.peer_cred()?.uid();
    // Whoever else put a socket there would name whom they like.
    if owner != 0 && owner != rustix::process::geteuid().as_raw() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "somebody else serves there"));
    }
    connection.write_all(format!("{}\n", options.to_query()).as_bytes()).await?;
    let mut connection = BufReader::with_capacity(PIECE, connection);
    let mut first = String::new();
    (&mut connection).take(FIRST_LINE).read_line(&mut first).await?;
    Ok((first.trim_end().to_owned(), connection))
}

/// Ends with the reader, with the collector, or with the node. Nothing is read that was not passed on.
fn pass_on(connection: BufReader<UnixStream>, stop: CancellationToken) -> Answer {
    let pieces = stream::unfold((connection, stop), |(mut connection, stop)| async move {
        let piece = match stop.run_until_cancelled(connection.fill_buf()).await? {
            Ok([]) => return None,
            Ok(piece) => Ok(Bytes::copy_from_slice(piece)),
            Err(error) => Err(error),
        };
        if let Ok(piece) = &piece {
            connection.consume(piece.len());
        }
        Some((piece.map(Frame::data), (connection, stop)))
    });
    let mut answer = Response::new(StreamBody::new(pieces).boxed_unsync());
    let kind = HeaderValue::from_static("application/jsonl");
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}
