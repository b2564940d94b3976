//! What a filter finds, as a file: JSON with everything, which [`SavedTrace`](super::SavedTrace) reads again, or CSV for spreadsheets.

use std::{mem, sync::Arc};

use bytes::Bytes;
use futures_util::{
    Stream, StreamExt,
    stream::{self, BoxStream},
};
use jiff::Timestamp;
use serde_json::json;

use super::{csv, find::Found, saved::VERSION};
use crate::{ProcessQuery, RecordedProcess, TraceSource, TraceSourceError};

/// Which file is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Json,
    Sessions,
    Programs,
}

/// So many programs are read at a time.
const AT_ONCE: usize = 2_000;

type Piece = Result<Bytes, TraceSourceError>;

impl Format {
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text {
            "json" => Some(Self::Json),
            "csv" => Some(Self::Sessions),
            "processes-csv" => Some(Self::Programs),
            _ => None,
        }
    }

    /// Its type, and the name that a file gets.
    pub(super) fn headers(self) -> (&'static str, &'static str) {
        match self {
            Self::Json => ("application/json", "attachment; filename=\"waybill-trace.json\""),
            Self::Sessions => {
                ("text/csv; charset=utf-8", "attachment; filename=\"waybill-sessions.csv\"")
            }
            Self::Programs => {
                ("text/csv; charset=utf-8", "attachment; filename=\"waybill-programs.csv\"")
            }
        }
    }
}

/// The file, piece by piece.
pub(super) fn pieces(
    format: Format,
    source: Arc<dyn TraceSource>,
    found: Found,
    now: Timestamp,
) -> BoxStream<'static, Piece> {
    match format {
        Format::Json => json_file(source, found, now).boxed(),
        Format::Sessions => {
            let rows = found.sessions.iter().map(csv::session).collect::<String>();
            stream::iter([Ok(Bytes::from(csv::session_head() + &rows))]).boxed()
        }
        Format::Programs => {
            let head = stream::iter([Ok(Bytes::from(csv::program_head()))]);
            let rows = stream::iter(found.sessions).flat_map(move |session| {
                let all = programs(Arc::clone(&source), session.id.clone());
                all.map(move |some| {
                    let rows =
                        some?.iter().map(|one| csv::program(&session, one)).collect::<String>();
                    Ok(Bytes::from(rows))
                })
            });
            head.chain(rows).boxed()
        }
    }
}

fn json_file(
    source: Arc<dyn TraceSource>,
    found: Found,
    now: Timestamp,
) -> impl Stream<Item = Piece> {
    let head = format!(
        "{{\"waybillTrace\":{VERSION},\"exported\":\"{now}\",\"coverage\":{},\"sessions\":[",
        json!(found.coverage)
    );
    let ids: Vec<String> = found.sessions.iter().map(|session| session.id.clone()).collect();
    let mut is_first = true;
    let sessions = stream::iter(found.sessions).map(move |session| {
        Ok(Bytes::from(separated(
            &mut is_first,
            &serde_json::to_string(&session).map_err(unwritten)?,
        )))
    });
    let mut is_first = true;
    let processes =
        stream::iter(ids).flat_map(move |id| programs(Arc::clone(&source), id)).map(move |some| {
            let mut text = String::new();
            for process in some? {
                text +=
                    &separated(&mut is_first, &serde_json::to_string(&process).map_err(unwritten)?);
            }
            Ok(Bytes::from(text))
        });
    let whole = |text: String| stream::iter([Ok(Bytes::from(text))]);
    whole(head)
        .chain(sessions)
        .chain(whole("],\"processes\":[".to_owned()))
        .chain(processes)
        .chain(whole("]}\n".to_owned()))
}

fn unwritten(error: serde_json::Error) -> TraceSourceError {
    TraceSourceError::new("an entry cannot be written", error)
}

fn separated(is_first: &mut bool, text: &str) -> String {
    let comma = if mem::take(is_first) { "\n" } else { ",\n" };
    format!("{comma}{text}")
}

/// The programs of a session, some at a time.
fn programs(
    source: Arc<dyn TraceSource>,
    id: String,
) -> BoxStream<'static, Result<Vec<RecordedProcess>, TraceSourceError>> {
    let start = Some((source, id, 0));
    let pages = stream::unfold(start, |state| async {
        let (source, id, offset) = state?;
        let query = ProcessQuery {
            session: Some(id.clone()),
            offset,
            limit: Some(AT_ONCE),
            ..ProcessQuery::default()
        };
        let answer = source.processes(&query).await;
        let is_last = answer.as_ref().map_or(true, |some| some.len() < AT_ONCE);
        Some((answer, (!is_last).then_some((source, id, offset + AT_ONCE))))
    });
    pages.boxed()
}
