//! One answer about the record: its lines, of the sessions that are wanted.
//!
//! The files are read once to know which those are, and once more to hand them out, so that no answer is ever in memory.

use std::{
    collections::{HashMap, HashSet},
    io::{self, Write},
    ops::ControlFlow,
    thread,
    time::{Duration, Instant},
};

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tracing::debug;
use waybill_api::trace::TraceOptions;
use waybill_core::chain::Chain;

use super::{selection::Selection, serve::RecordServerConfig, wire::WireLine};
use crate::{
    collector::wall,
    hide::hide_secrets,
    join::{End, Trace},
    journal::{Entry, JournalReader, LogName, ReadLine},
    local::LiveSource,
    process::LiveProcess,
    record::{RecordedSession, SessionQuery},
    runtime::Runtime,
};

/// An answer that takes longer is given up; the largest record is read in less.
const LONGEST: Duration = Duration::from_secs(600);

/// How often files are looked at for what is new.
const LOOK: Duration = Duration::from_millis(500);

/// Every so many looks the runtime is asked too, and a reader who gets nothing gets an empty line, which shows whether it is there.
const ASK: u32 = 4;

/// How many requests of the audit log are remembered.
const REQUESTS: usize = 4096;

/// One answer.
pub(super) struct Answering<'a> {
    config: &'a RecordServerConfig,
    options: &'a TraceOptions,
    selection: Selection,
    stop: &'a CancellationToken,
    handle: Handle,
    /// Sessions that are told because others in their container are wanted.
    beside: HashSet<String>,
    /// The last line of sessions that are not wanted so far, for when a program of theirs is what is looked for.
    held_back: HashMap<String, Vec<u8>>,
    began: Instant,
}

impl<'a> Answering<'a> {
    pub(super) fn new(
        config: &'a RecordServerConfig,
        options: &'a TraceOptions,
        query: SessionQuery,
        stop: &'a CancellationToken,
        handle: Handle,
    ) -> Self {
        Self {
            config,
            options,
            selection: Selection::new(query),
            stop,
            handle,
            beside: HashSet::new(),
            held_back: HashMap::new(),
            began: Instant::now(),
        }
    }

    /// Writes all of it, and what comes after if that is wanted.
    pub(super) fn write(mut self, output: &mut impl Write) -> io::Result<()> {
        let mut live = self.open_live();
        let mut traces = live.as_mut().map(|live| self.look(live)).unwrap_or_default();
        self.choose()?;
        for trace in &traces {
            self.selection.hear_live(trace);
        }
        if self.options.beside {
            self.beside = self.selection.beside();
            let sessions = self.beside.iter().cloned().collect();
            output.write_all(&WireLine::Beside { sessions }.text())?;
        }
        let mut readers = LogName::ALL.map(|log| (log, self.reader(log)));
        self.pass_on(&mut readers, output)?;
        self.tell_live(&traces, output)?;
        output.write_all(&WireLine::End.text())?;
        output.flush()?;
        let mut looks = 0_u32;
        while self.options.follow && !self.stop.is_cancelled() {
            thread::sleep(LOOK);
            looks = looks.wrapping_add(1);
            self.pass_on(&mut readers, output)?;
            if looks.is_multiple_of(ASK) {
                let now = live.as_mut().map(|live| self.look(live)).unwrap_or_default();
                if now == traces {
                    output.write_all(b"\n")?;
                } else {
                    traces = now;
                    for trace in &traces {
                        self.selection.hear_live(trace);
                    }
                    self.tell_live(&traces, output)?;
                }
            }
            output.flush()?;
        }
        Ok(())
    }

    fn reader(&self, log: LogName) -> JournalReader {
        JournalReader::new(&self.config.directory, log)
    }

    /// Finds out which sessions are wanted.
    fn choose(&mut self) -> io::Result<()> {
        let mut logs = vec![LogName::Sessions];
        logs.extend(self.selection.needs_programs().then_some(LogName::Programs));
        for log in logs {
            let mut fault = None;
            self.reader(log).read_lines(|_, line| {
                fault = self.is_over().err();
                match line {
                    ReadLine::Entry(_, entry) => self.hear(&entry),
                    ReadLine::Newer(_) | ReadLine::Unreadable => {}
                }
                if fault.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            fault.map_or(Ok(()), Err)?;
        }
        Ok(())
    }

    fn hear(&mut self, entry: &Entry) {
        match entry {
            Entry::Session(session) => self.selection.hear_session(session),
            Entry::Program(program) => self.selection.hear_program(program),
            _ => {}
        }
    }

    /// Writes what is new in the files and wanted.
    fn pass_on(
        &mut self,
        readers: &mut [(LogName, JournalReader); 2],
        output: &mut impl Write,
    ) -> io::Result<()> {
        for (log, reader) in readers {
            if *log == LogName::Programs && !self.is_about_programs() {
                continue;
            }
            let mut written = Ok(());
            reader.read_lines(|text, line| {
                written = self.is_over();
                if let (ReadLine::Entry(_, entry), true) = (line, written.is_ok()) {
                    self.hear(&entry);
                    written = self.pass(&entry, text, output);
                }
                if written.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            written?;
        }
        Ok(())
    }

    /// Whether anybody has to look at them.
    fn is_about_programs(&self) -> bool {
        self.options.programs || (self.options.follow && self.selection.needs_programs())
    }

    fn pass(&mut self, entry: &Entry, text: &[u8], output: &mut impl Write) -> io::Result<()> {
        let is_wanted = match entry {
            // What happened to the record is everybody's business.
            Entry::Start { .. } | Entry::Stop { .. } | Entry::Lost { .. } => true,
            Entry::Session(session) => {
                let id = session.id.as_str();
                let is_wanted = self.selection.wants(id) || self.beside.contains(id);
                let may_be = self.options.follow && self.selection.needs_programs();
                if !is_wanted && may_be && session.trace.end == End::Running {
                    self.held_back.insert(id.to_owned(), text.to_owned());
                } else {
                    self.held_back.remove(id);
                }
                is_wanted
            }
            Entry::Program(program) => {
                let is_wanted = self.selection.wants(&program.session);
                if is_wanted && let Some(session) = self.held_back.remove(&program.session) {
                    output.write_all(&session)?;
                    output.write_all(b"\n")?;
                }
                is_wanted && self.options.programs
            }
            Entry::Exit(exit) => self.options.programs && self.selection.wants(&exit.session),
            Entry::File { .. } | Entry::Head { .. } | Entry::Removed { .. } => false,
        };
        if is_wanted {
            output.write_all(text)?;
            output.write_all(b"\n")?;
        }
        Ok(())
    }

    fn is_over(&self) -> io::Result<()> {
        if self.stop.is_cancelled() {
            return Err(io::Error::other("the collector ends"));
        }
        if !self.options.follow && self.began.elapsed() > LONGEST {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }

    fn open_live(&self) -> Option<LiveSource> {
        let audit_log = self.config.audit_log.as_deref()?;
        let runtime = self.handle.block_on(Runtime::connect(&self.config.runtime));
        match runtime {
            Ok(runtime) => Some(LiveSource::recent(audit_log, REQUESTS, runtime)),
            Err(error) => {
                debug!(error = %Chain(&error), "only what is on record is told");
                None
            }
        }
    }

    /// What is known now, with nothing that looks like a secret. Nothing while the runtime does not answer.
    fn look(&self, live: &mut LiveSource) -> Vec<Trace> {
        match self.handle.block_on(live.look(wall())) {
            Ok(view) => view.traces.into_iter().map(without_secrets).collect(),
            Err(error) => {
                debug!(error = %Chain(&error), "only what is on record is told");
                Vec::new()
            }
        }
    }

    fn tell_live(&self, traces: &[Trace], output: &mut impl Write) -> io::Result<()> {
        let is_told = |trace: &&Trace| {
            let id = RecordedSession::id_of(trace);
            self.selection.wants(&id) || self.beside.contains(&id)
        };
        let traces = traces.iter().filter(is_told).cloned().collect();
        output.write_all(&WireLine::Live { traces }.text())
    }
}

fn without_secrets(mut trace: Trace) -> Trace {
    let hide = |words: &mut Vec<String>| {
        let program = words.first().cloned().unwrap_or_default();
        (*words, _) = hide_secrets(&program, words);
    };
    hide(&mut trace.command);
    let processes =
        trace.processes.iter_mut().chain(trace.moved.iter_mut().map(|it| &mut it.process));
    processes.for_each(|LiveProcess { command, .. }| hide(command));
    trace
}
