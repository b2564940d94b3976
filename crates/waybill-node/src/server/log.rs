//! Logs of containers: the files that the runtime writes, as users want to read them.

mod cursor;
mod entry;
mod options;
mod render;
mod source;
mod tail;

use std::{io, path::PathBuf, time::Duration};

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, Response, header::CONTENT_TYPE};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tonic::Code;
use waybill_proto::cri;

use self::{
    cursor::{Cursor, Step},
    options::LogOptions,
    render::Renderer,
};
use super::{
    Service,
    answer::{Answer, Refusal},
    containers,
    route::ContainerPath,
};
use crate::{blocking, cri::Runtime};

/// How often a log that is followed is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// How often the runtime is asked whether a quiet container still runs.
const ASK: Duration = Duration::from_millis(300);

impl Service {
    /// The log of one container, whole or in part, and what comes after if it is followed.
    pub(super) async fn logs(&self, path: &ContainerPath, query: &str) -> Result<Answer, Refusal> {
        let options = LogOptions::from_query(query)?;
        let pod = self.find_pod(&path.pod)?;
        let name = path.container.as_str();
        if !pod.containers().any(|container| container.name() == name) {
            let text = format!("container {name:?} not found in pod {:?}", pod.name());
            return Err(Refusal::NotFound(text));
        }
        let all = containers::newest_first(&self.runtime, &pod, name).await?;
        let id = source::choose(&all, &pod, name, options.previous)?;
        let status = containers::status(&self.runtime, id).await?;
        if status.log_path.is_empty() {
            let text = format!("the runtime keeps no log of container {name:?}");
            return Err(Refusal::NotFound(text));
        }
        let renderer = Renderer::new(&options, (self.clock)());
        let path = PathBuf::from(status.log_path);
        let tail = options.tail_lines.map(|lines| (lines, options.stream));
        let cursor = blocking(move || Cursor::open(path, tail, renderer)).await;
        let cursor = cursor.map_err(Refusal::Log)?;
        let log = Log {
            cursor,
            // One that has ended is not followed, but read to its end.
            follow: options.follow
                && status.state == i32::from(cri::ContainerState::ContainerRunning),
            container: status.id,
            runtime: self.runtime.clone(),
            asked: Instant::now(),
            stop: self.stop.clone(),
        };
        Ok(answer(log))
    }
}

/// A log that somebody reads. It ends with its reader: hyper drops the body with the connection.
struct Log {
    cursor: Cursor,
    follow: bool,
    container: String,
    runtime: Runtime,
    asked: Instant,
    stop: CancellationToken,
}

impl Log {
    /// The next piece, and the rest; `None` at the end.
    async fn next(mut self) -> Option<(io::Result<Frame<Bytes>>, Self)> {
        loop {
            let (cursor, step) = blocking(move || {
                let step = self.cursor.advance();
                (self.cursor, step)
            })
            .await;
            self.cursor = cursor;
            match step {
                Ok(Step::Data(bytes)) => return Some((Ok(Frame::data(bytes)), self)),
                Ok(Step::End) if self.follow => self.wait().await?,
                Ok(Step::End) => {
                    let rest = self.cursor.finish()?;
                    return Some((Ok(Frame::data(rest)), self));
                }
                Ok(Step::Done) => return None,
                Err(error) => {
                    self.cursor.stop();
                    return Some((Err(error), self));
                }
            }
        }
    }

    /// Waits until it is worth looking again; `None` if the node stops.
    async fn wait(&mut self) -> Option<()> {
        self.stop.run_until_cancelled(sleep(LOOK)).await?;
        if self.asked.elapsed() >= ASK {
            let running = self.stop.run_until_cancelled(self.is_running()).await?;
            self.asked = Instant::now();
            // Everything that the container said is in the file by now, so one more look is enough.
            self.follow = running;
        }
        Some(())
    }

    /// A runtime that does not answer may be about to be started again; its containers run on.
    async fn is_running(&self) -> bool {
        match containers::status(&self.runtime, &self.container).await {
            Ok(status) => status.state == i32::from(cri::ContainerState::ContainerRunning),
            Err(status) => status.code() != Code::NotFound,
        }
    }
}

fn answer(log: Log) -> Answer {
    let body = StreamBody::new(stream::unfold(log, Log::next)).boxed_unsync();
    let mut answer = Response::new(body);
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    answer
}

/// Files are read where waiting for a disk stops nobody else.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match blocking::blocking(work).await {
        Ok(done) => done,
        // It panicked, and we do, too.
        Err(error) => std::panic::resume_unwind(Box::new(error)),
    }
}
