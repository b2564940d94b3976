//! Where events come from: the best source that this machine has, and why it is not a better one.

use std::{io, os::fd::OwnedFd};

use tokio::{io::unix::AsyncFd, time::sleep};
use waybill_core::chain::Chain;

use super::{
    connector::Connector,
    scan::{LOOK, Scanner},
};
use crate::{
    kernel::{Ebpf, KernelEvent},
    record::EventSource,
    sys::watch,
};

/// A source, open.
#[derive(Debug)]
pub(crate) struct Source {
    kind: Kind,
    /// Becomes readable when there is something.
    readable: Option<AsyncFd<OwnedFd>>,
    /// Why there is no better one.
    pub(crate) why_not_better: Option<String>,
}

#[derive(Debug)]
enum Kind {
    Ebpf(Box<Ebpf>),
    Connector(Box<Connector>),
    Scan(Box<Scanner>),
}

impl Source {
    /// The best one, or the best that is not better than `wanted`.
    pub(crate) fn open(wanted: Option<EventSource>) -> io::Result<Self> {
        let mut reasons = Vec::new();
        let asked = |source| wanted.is_none_or(|wanted| wanted <= source);
        if asked(EventSource::Ebpf) {
            match Ebpf::load() {
                Ok(ebpf) => {
                    let descriptor = ebpf.descriptor().try_clone_to_owned()?;
                    return Self::new(Kind::Ebpf(Box::new(ebpf)), Some(descriptor), &reasons);
                }
                Err(error) => reasons.push(format!("no eBPF: {}", Chain(&error))),
            }
        } else {
            reasons.push("another source was asked for".to_owned());
        }
        if asked(EventSource::Connector) {
            match Connector::open() {
                Ok(connector) => {
                    let descriptor = connector.descriptor().try_clone_to_owned()?;
                    let kind = Kind::Connector(Box::new(connector));
                    return Self::new(kind, Some(descriptor), &reasons);
                }
                Err(error) => reasons.push(format!("no proc connector: {error}")),
            }
        }
        Self::new(Kind::Scan(Box::new(Scanner::new()?)), None, &reasons)
    }

    fn new(kind: Kind, descriptor: Option<OwnedFd>, reasons: &[String]) -> io::Result<Self> {
        let readable = descriptor.map(watch).transpose()?;
        let why_not_better = (!reasons.is_empty()).then(|| reasons.join("; "));
        Ok(Self { kind, readable, why_not_better })
    }

    pub(crate) fn is(&self) -> EventSource {
        match &self.kind {
            Kind::Ebpf(_) => EventSource::Ebpf,
            Kind::Connector(_) => EventSource::Connector,
            Kind::Scan(_) => EventSource::Scan,
        }
    }

    /// Waits until there may be something; may be given up at any time.
    pub(crate) async fn ready(&self) {
        match &self.readable {
            Some(readable) => match readable.readable().await {
                Ok(mut guard) => guard.clear_ready(),
                Err(_) => sleep(LOOK).await,
            },
            None => sleep(LOOK).await,
        }
    }

    /// Whether events that come one by one are worth waiting for others.
    pub(crate) fn comes_in_batches(&self) -> bool {
        // Who has to look processes up must be quick.
        matches!(self.kind, Kind::Ebpf(_))
    }

    pub(crate) fn drain(&mut self, take: impl FnMut(KernelEvent)) {
        match &mut self.kind {
            Kind::Ebpf(ebpf) => ebpf.drain(take),
            Kind::Connector(connector) => connector.drain(take),
            Kind::Scan(scanner) => scanner.look(take),
        }
    }

    /// How many events were lost since the beginning, as far as anybody can tell.
    pub(crate) fn lost(&self) -> u64 {
        match &self.kind {
            Kind::Ebpf(ebpf) => ebpf.lost().unwrap_or(0),
            Kind::Connector(connector) => connector.lost(),
            Kind::Scan(_) => 0,
        }
    }

    /// A container whose own processes nobody wants to know of.
    pub(crate) fn ignore(&self, processes_cgroup: u64) {
        if let Kind::Ebpf(ebpf) = &self.kind {
            // Then they are told, and passed over later.
            let _ = ebpf.ignore(processes_cgroup);
        }
    }

    /// A container that is gone.
    pub(crate) fn forget(&self, processes_cgroup: u64) {
        if let Kind::Ebpf(ebpf) = &self.kind {
            let _ = ebpf.forget_ignored(processes_cgroup);
        }
    }

    /// Tells of the end of a process whose beginning was not told.
    pub(crate) fn track(&self, pid: u32, began: u64) {
        if let Kind::Ebpf(ebpf) = &self.kind {
            let _ = ebpf.track(pid, began);
        }
    }
}
