//! `agent.sock`: one question and one answer, a line each. Only root can connect, and the wrapper is root.

use std::{path::Path, pin::pin, sync::Arc, time::Duration};

use futures_util::StreamExt;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::UnixStream,
    sync::Semaphore,
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use waybill_api::stock::{Answer, AskedValues, SOCKET_SECONDS};
use waybill_csi::server::Socket;

use super::{pods::Pods, values::HeldValues};

/// Names of variables and keys, and nothing else, are in a question.
const QUESTION_BYTES: u64 = 1 << 20;

/// Wrappers are started at most a few at once.
const AT_ONCE: usize = 64;

/// What answers.
pub(super) struct Answers {
    pub(super) pods: Arc<Pods>,
    pub(super) values: Arc<HeldValues>,
}

/// Serves until `stop`.
pub(super) fn serve(
    path: &Path,
    answers: Answers,
    tasks: &TaskTracker,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let socket = Socket::bind(path)?;
    let (answers, each) = (Arc::new(answers), tasks.clone());
    let room = Arc::new(Semaphore::new(AT_ONCE));
    tasks.spawn(async move {
        let mut connections = pin!(socket.connections(stop));
        while let Some(Ok(connection)) = connections.next().await {
            let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
            let answers = Arc::clone(&answers);
            each.spawn(async move {
                let limit = Duration::from_secs(SOCKET_SECONDS);
                if timeout(limit, answers.converse(connection)).await.is_err() {
                    tracing::warn!("a wrapper took too long");
                }
                drop(place);
            });
        }
    });
    Ok(())
}

impl Answers {
    async fn converse(&self, connection: UnixStream) {
        let (read, mut write) = connection.into_split();
        let mut line = Vec::new();
        let mut read = BufReader::new(read.take(QUESTION_BYTES));
        if read.read_until(b'\n', &mut line).await.is_err() || !line.ends_with(b"\n") {
            return;
        }
        let answer = match AskedValues::parse(&line) {
            Ok(asked) => self.values.answer(&asked, self.pods.find(&asked.uid).as_ref()),
            Err(error) => Answer::Refused { error: error.to_string(), retry: false },
        };
        let line = answer.to_line();
        // Who is gone gets no answer.
        let _ = write.write_all(line.expose()).await;
        let _ = write.shutdown().await;
    }
}
