//! What ran inside a session, from the kernel and on record after the session is over.

use std::time::{Duration, Instant};

use anyhow::Result;
use jiff::Timestamp;
use tokio::time::sleep;
use waybill_trace::{
    EventSource, LocalRecord, ProcessQuery, ProcessState, RecordedProcess, RecordedSession,
    SessionQuery, TraceSource, recording,
};

use super::{
    Report,
    scenes::{PATIENCE, Scenes},
    sessions::output,
};
use crate::collector::RECORD;

const CLAIM: &str = "what ran in a session is on record, from the kernel, after it is over";

/// Programs that are over before anybody could look; the second one below a subshell.
const SCRIPT: &str = "/bin/true first; (/bin/true second; :); /bin/false third; exit 3";

impl Scenes {
    /// Somebody runs a script of short programs, and each is told with its arguments and its end.
    pub(super) async fn programs(&self, report: &mut Report) -> Result<()> {
        let directory = self.state_dir.join(RECORD);
        match recording(&directory, Timestamp::now()) {
            Some(it) if it.source == EventSource::Ebpf => {}
            Some(it) => {
                let why = it.why_not_better.unwrap_or_default();
                return Ok(report.left_out(CLAIM, &why)?);
            }
            None => return Ok(report.left_out(CLAIM, "no collector runs")?),
        }
        output(self.begin("anna", &["sh", "-c", SCRIPT]).await?).await?;
        let record = LocalRecord::new(&directory, None);
        let start = Instant::now();
        let (session, programs) = loop {
            let found = self.recorded(&record).await?;
            let is_whole = found.as_ref().is_some_and(|(_, programs)| programs.len() >= 4);
            match found {
                Some(found) if is_whole || start.elapsed() > PATIENCE => break found,
                None if start.elapsed() > PATIENCE => {
                    return Ok(report.check(CLAIM, false, "the session is not on record")?);
                }
                _ => sleep(Duration::from_millis(50)).await,
            }
        };
        let told: Vec<_> = programs.iter().map(told).collect();
        let holds = session.trace.user() == Some("anna")
            && session.event_source == Some(EventSource::Ebpf)
            && session.complete
            && told.iter().skip(1).map(String::as_str).eq([
                "/bin/true first [exit 0]",
                "/bin/true second [exit 0]",
                "/bin/false third [exit 1]",
            ]);
        report.check(CLAIM, holds, &format!("anna: {}", told.join(", ")))?;
        Ok(())
    }

    /// The session, once it is over, and its programs that are.
    async fn recorded(
        &self,
        record: &LocalRecord,
    ) -> Result<Option<(RecordedSession, Vec<RecordedProcess>)>> {
        let query = SessionQuery {
            user: Some("anna".to_owned()),
            command: Some("third".to_owned()),
            ..SessionQuery::default()
        };
        let Some(session) = record.sessions(&query).await?.sessions.pop() else { return Ok(None) };
        let of_session =
            ProcessQuery { session: Some(session.id.clone()), ..ProcessQuery::default() };
        let mut programs = record.processes(&of_session).await?;
        programs.retain(|program| program.state != ProcessState::Running);
        Ok(Some((session, programs)))
    }
}

fn told(program: &RecordedProcess) -> String {
    let end = match (program.exit_code, program.signal) {
        (Some(code), _) => format!("exit {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "ended".to_owned(),
    };
    format!("{} [{end}]", program.arguments.join(" "))
}
