//! One probe of one container, from its first question to its last.

use std::{sync::Arc, time::Duration};

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Probe;
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval, sleep},
};

use super::{
    ProbeFailure, Purpose, Shared,
    ask::{Answer, Subject, ask},
    tally::Tally,
};
use crate::event::Kind;

/// When to ask, and what answers mean. Missing numbers are those of the API.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    /// Until the first question.
    delay: Duration,
    period: Duration,
    timeout: Duration,
    tally: Tally,
}

impl Schedule {
    /// For a container that has run for `age`.
    pub(super) fn of(probe: &Probe, age: SignedDuration) -> Self {
        let number = |field: Option<i32>, default: u32| {
            field
                .and_then(|number| u32::try_from(number).ok())
                .filter(|n| *n > 0)
                .unwrap_or(default)
        };
        let seconds = |number: u32| Duration::from_secs(number.into());
        let delay = SignedDuration::from_secs(number(probe.initial_delay_seconds, 0).into()) - age;
        Self {
            delay: Duration::try_from(delay).unwrap_or_default(),
            period: seconds(number(probe.period_seconds, 10)),
            timeout: seconds(number(probe.timeout_seconds, 1)),
            tally: Tally::new(
                number(probe.failure_threshold, 3),
                number(probe.success_threshold, 1),
            ),
        }
    }
}

#[cfg(test)]
impl Schedule {
    pub(super) fn delay(&self) -> Duration {
        self.delay
    }
}

/// A probe at work.
pub(super) struct Run {
    pub(super) shared: Arc<Shared>,
    pub(super) subject: Arc<Subject>,
    pub(super) purpose: Purpose,
    pub(super) probe: Probe,
    pub(super) schedule: Schedule,
    /// Is told when the startup probe has passed.
    pub(super) started: Arc<watch::Sender<bool>>,
    pub(super) has_started: watch::Receiver<bool>,
}

impl Run {
    /// Asks until the answer is final, or the task is ended.
    pub(super) async fn run(mut self) {
        if self.purpose != Purpose::Startup
            && self.has_started.wait_for(|started| *started).await.is_err()
        {
            return;
        }
        sleep(self.schedule.delay).await;
        let mut ticks = interval(self.schedule.period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let answer = ask(&self.subject, &self.probe, self.schedule.timeout).await;
            if self.take(answer) {
                return;
            }
        }
    }

    /// Takes an answer; whether it was the last one that is needed.
    fn take(&mut self, answer: Answer) -> bool {
        let (passed, message) = match answer {
            Answer::Passed => (true, String::new()),
            Answer::Warned(message) => {
                self.note("ProbeWarning", &format!("probe warning: {message}"));
                (true, String::new())
            }
            Answer::Failed(message) => {
                self.note("Unhealthy", &format!("probe failed: {message}"));
                (false, message)
            }
            Answer::Unknown(message) => {
                // It says nothing about the container.
                self.note("Unhealthy", &format!("probe errored: {message}"));
                return false;
            }
        };
        let Some(result) = self.schedule.tally.take(passed) else { return false };
        let (purpose, subject) = (self.purpose, &self.subject);
        let grace = self.probe.termination_grace_period_seconds;
        self.shared.record(subject, |results| match (purpose, result) {
            (Purpose::Readiness, ready) => results.ready = Some(ready),
            (Purpose::Startup, true) => results.started = Some(true),
            (Purpose::Liveness, true) => {}
            (Purpose::Liveness | Purpose::Startup, false) => {
                results.failed = Some(ProbeFailure { purpose, message, grace });
            }
        });
        match (purpose, result) {
            (Purpose::Readiness, _) | (Purpose::Liveness, true) => false,
            (Purpose::Startup, true) => {
                self.started.send_replace(true);
                true
            }
            // The container is going to be killed.
            (Purpose::Liveness | Purpose::Startup, false) => true,
        }
    }

    fn note(&self, reason: &str, message: &str) {
        let message = format!("{} {message}", self.purpose.as_str());
        let Subject { pod, container, .. } = &*self.subject;
        self.shared.recorder.container(pod, &container.name, Kind::Warning, reason, &message);
    }
}
