//! Changes for one browser, as a stream of events.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{Stream, stream};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use waybill_core::chain::Chain;

use super::{
    feed::{Feed, News},
    filter::PageFilter,
    find,
    rows::{CoverageRow, Row},
};
use crate::{RecordedSession, TraceSource, TraceSourceError};

/// Changes that come together go together: nobody reads faster.
const GATHER: Duration = Duration::from_millis(400);

/// A browser that hears nothing for longer takes the connection for lost.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// Follows what changes in sessions that match.
pub(super) struct Changes {
    pub(super) source: Arc<dyn TraceSource>,
    pub(super) feed: Arc<Feed>,
    pub(super) filter: PageFilter,
    /// The number of the last change that the browser knows.
    pub(super) after: u64,
    pub(super) clock: fn() -> Timestamp,
    pub(super) stop: CancellationToken,
}

/// One message about changes.
#[derive(Serialize)]
struct Message<'a> {
    mark: u64,
    now: i64,
    sessions: Vec<Row<'a>>,
    touched: &'a [String],
    coverage: Option<CoverageRow<'a>>,
}

impl Changes {
    /// Ends when the server does.
    pub(super) fn stream(self) -> impl Stream<Item = Bytes> + Send {
        let heard = self.feed.listen();
        let greeting = stream::iter([Bytes::from_static(b": here\n\n")]);
        let rest = stream::unfold((self, heard), |(mut changes, mut heard)| async {
            let stop = changes.stop.clone();
            let event = stop.run_until_cancelled(changes.next(&mut heard)).await?;
            Some((event, (changes, heard)))
        });
        stream::StreamExt::chain(greeting, rest)
    }

    async fn next(&mut self, heard: &mut watch::Receiver<u64>) -> Bytes {
        loop {
            let after = self.after;
            let new = heard.wait_for(|last| *last > after);
            if timeout(HEARTBEAT, new).await.is_err() {
                return Bytes::from_static(b": still here\n\n");
            }
            sleep(GATHER).await;
            let Some(news) = self.feed.since(self.after) else {
                self.after = self.feed.last();
                return event("missed", &json!({}));
            };
            self.after = news.last;
            match self.matching(&news).await {
                Ok(sessions) => {
                    if let Some(message) = self.message(&news, &sessions) {
                        return message;
                    }
                }
                Err(error) => {
                    return event("trouble", &json!({"message": Chain(&error).to_string()}));
                }
            }
        }
    }

    async fn matching(&self, news: &News) -> Result<Vec<Arc<RecordedSession>>, TraceSourceError> {
        let mut sessions = Vec::new();
        for session in &news.sessions {
            if find::matches(self.source.as_ref(), &self.filter, session).await? {
                sessions.push(Arc::clone(session));
            }
        }
        Ok(sessions)
    }

    /// Nothing if there is nothing to say.
    fn message(&self, news: &News, sessions: &[Arc<RecordedSession>]) -> Option<Bytes> {
        if sessions.is_empty() && news.touched.is_empty() && news.coverage.is_none() {
            return None;
        }
        Some(event(
            "changes",
            &Message {
                mark: news.last,
                now: (self.clock)().as_microsecond(),
                sessions: sessions.iter().map(|session| Row::of(session)).collect(),
                touched: &news.touched,
                coverage: news.coverage.as_ref().map(CoverageRow::of),
            },
        ))
    }
}

/// One event; JSON has no line breaks.
fn event(name: &str, data: &impl Serialize) -> Bytes {
    let data = serde_json::to_string(data).unwrap_or_else(|_| "null".to_owned());
    Bytes::from(format!("event: {name}\ndata: {data}\n\n"))
}
