//! EXEC-57: does a CRI runtime give exec sessions their variables as KEP-6035 says?
//!
//! Runs against any runtime's socket. The image that it is told to use must be there and hold
//! `/busybox`, and nothing else is asked of it: no shell, no `env`. A runtime that does not know
//! `ExecRequest.envs` is *unsupported*, not wrong, as long as its sessions work without them.

mod cases;
mod container;
mod runtime;
mod session;

use std::fmt;

use self::{cases::CASES, container::Container};

pub use self::runtime::{ConformanceError, MakeWords, Stamp, Target};

/// What one case showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The runtime does what the case asks.
    Passed,
    /// It does not; what was seen instead.
    Failed(String),
    /// It does not know what the suite is about.
    Unsupported,
}

/// One case of the suite and its verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What the case asks, in a few words.
    pub case: &'static str,
    /// The requirement behind it.
    pub requirement: &'static str,
    /// What it showed.
    pub verdict: Verdict,
}

/// Runs every case against one runtime, in one container that is removed again.
pub async fn run(target: &Target) -> Result<Vec<Report>, ConformanceError> {
    let container = Container::start(target).await?;
    let mut reports = Vec::with_capacity(CASES.len());
    let supported = container.supports_variables().await;
    if let Ok(supported) = supported {
        for case in CASES {
            let verdict = if case.needs_support && !supported {
                Verdict::Unsupported
            } else {
                match (case.check)(&container).await {
                    Ok(()) => Verdict::Passed,
                    Err(found) => Verdict::Failed(found),
                }
            };
            reports.push(Report { case: case.name, requirement: case.requirement, verdict });
        }
    }
    container.remove().await?;
    supported.map(|_| reports)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { case, requirement, verdict } = self;
        match verdict {
            Verdict::Passed => write!(f, "passed       {requirement}  {case}"),
            Verdict::Failed(found) => write!(f, "failed       {requirement}  {case}: {found}"),
            Verdict::Unsupported => write!(f, "unsupported  {requirement}  {case}"),
        }
    }
}
