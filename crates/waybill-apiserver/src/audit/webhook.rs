//! Events for another service, beside the files: `--audit-webhook-config-file` of upstream.
//!
//! A [`Tee`] gives each line to the file and, once the file has it, to a buffer. One thread takes batches out of the
//! buffer and sends them as an `EventList`, in order. What the service does not take is sent again, later and later,
//! until it does; meanwhile the buffer fills, and what finds no place in it is lost for the service, counted, and told
//! to it by a notice. The file has everything in any case, and no request fails because of the service.

mod buffer;
mod client;
mod kubeconfig;

#[cfg(test)]
mod tests;

use std::{
    io,
    sync::Arc,
    thread::{Builder, JoinHandle},
    time::Duration,
};

use jiff::Timestamp;
use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::Registry,
};
use tokio::time::{Instant, sleep, timeout};
use waybill_core::chain::Chain;

pub(crate) use self::kubeconfig::WebhookTarget;
use self::{
    buffer::{Batch, Buffer},
    client::Client,
};
use super::log::Sink;
use crate::clock::Clock;

/// One attempt to deliver a batch takes no longer.
const ATTEMPT: Duration = Duration::from_secs(30);

/// What is left is delivered within this time when the server ends.
const LAST_ATTEMPT: Duration = Duration::from_secs(5);

/// How long the answer to a change waits in mode `blocking`.
const BLOCKS: Duration = Duration::from_secs(5);

/// The wait before another attempt grows by half each time, up to this.
const LONGEST_BACKOFF: Duration = Duration::from_secs(60);

/// How events are sent; names and defaults are upstream's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct WebhookOptions {
    pub(crate) mode: Mode,
    /// How many events may wait.
    pub(crate) buffer_size: usize,
    /// How many events go together.
    pub(crate) max_batch_size: usize,
    /// How long the first event of a batch waits for others.
    pub(crate) max_batch_wait: Duration,
    /// How many batches a second, and how many at once after a pause.
    pub(crate) throttle: Option<(f32, u32)>,
    /// The wait before a batch is sent for the second time.
    pub(crate) initial_backoff: Duration,
}

/// Who waits for the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Nobody.
    Batch,
    /// The answer to a change, for a while.
    Blocking,
}

impl Default for WebhookOptions {
    fn default() -> Self {
        Self {
            mode: Mode::Batch,
            buffer_size: 10_000,
            max_batch_size: 400,
            max_batch_wait: Duration::from_secs(30),
            throttle: Some((10.0, 15)),
            initial_backoff: Duration::from_secs(10),
        }
    }
}

/// What is counted; clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct WebhookMetrics {
    sent: Counter,
    lost: Counter,
    failing: Gauge,
}

impl WebhookMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "waybill_audit_webhook_events",
            "Audit events that the audit webhook took",
            self.sent.clone(),
        );
        registry.register(
            "waybill_audit_webhook_events_lost",
            "Audit events that the audit webhook never gets, because too many waited for it",
            self.lost.clone(),
        );
        registry.register(
            "waybill_audit_webhook_failing",
            "1 while the audit webhook does not take events",
            self.failing.clone(),
        );
    }
}

/// A service that gets events. When it is dropped, what is left is sent once more.
pub(crate) struct Webhook {
    buffer: Arc<Buffer>,
    options: WebhookOptions,
    thread: Option<JoinHandle<()>>,
}

impl Webhook {
    /// Starts to send. The service is asked for the first time when there is something for it.
    pub(crate) fn start(
        target: WebhookTarget,
        options: WebhookOptions,
        metrics: WebhookMetrics,
        clock: Clock,
    ) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let buffer = Arc::new(Buffer::new(options.buffer_size, metrics.lost.clone()));
        let client = Client::new(target);
        let sender = Sender { buffer: Arc::clone(&buffer), client, options, metrics, clock };
        let thread = Builder::new()
            .name("audit-webhook".to_owned())
            .spawn(move || runtime.block_on(sender.run()))?;
        Ok(Self { buffer, options, thread: Some(thread) })
    }

    /// Takes whole lines. In mode `blocking` this returns when the service has them, or after a while.
    fn take(&self, now: Timestamp, lines: &[u8]) {
        let last = self.buffer.push(now, lines);
        if self.options.mode == Mode::Blocking {
            self.buffer.wait_for(last, BLOCKS);
        }
    }
}

impl Drop for Webhook {
    fn drop(&mut self) {
        self.buffer.stop();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the sender of audit events panicked");
        }
    }
}

/// Writes to a file, and tells a service what is in it.
pub(crate) struct Tee<S> {
    pub(crate) file: S,
    pub(crate) webhook: Option<Arc<Webhook>>,
}

impl<S: Sink> Sink for Tee<S> {
    fn append(&mut self, now: Timestamp, lines: &[u8]) -> io::Result<()> {
        self.file.append(now, lines)?;
        if let Some(webhook) = &self.webhook {
            webhook.take(now, lines);
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync()
    }

    fn make_room(&mut self) -> io::Result<()> {
        self.file.make_room()
    }

    fn reopen(&mut self, now: Timestamp) -> io::Result<()> {
        self.file.reopen(now)
    }
}

/// What runs on the thread.
struct Sender {
    buffer: Arc<Buffer>,
    client: Client,
    options: WebhookOptions,
    metrics: WebhookMetrics,
    clock: Clock,
}

impl Sender {
    async fn run(mut self) {
        let mut throttle = self.options.throttle.map(Throttle::new);
        while self.buffer.ready(&self.options).await {
            if let Some(throttle) = &mut throttle {
                throttle.pass(&self.buffer).await;
            }
            if let Some(batch) = self.buffer.take(self.options.max_batch_size, (self.clock)()) {
                self.deliver(batch).await;
            }
        }
    }

    /// Sends a batch until it is taken. When the server ends there is one more attempt.
    async fn deliver(&mut self, batch: Batch) {
        let mut backoff = self.options.initial_backoff;
        loop {
            let last = self.buffer.is_stopped();
            let limit = if last { LAST_ATTEMPT } else { ATTEMPT };
            let error = match timeout(limit, self.client.post(batch.body())).await {
                Ok(Ok(())) => return self.taken(&batch),
                Ok(Err(error)) => Chain(&error).to_string(),
                Err(_) => "it does not answer in time".to_owned(),
            };
            if self.metrics.failing.set(1) == 0 {
                tracing::error!(error, "the audit webhook does not take events");
            }
            if last {
                return self.buffer.lose(&batch);
            }
            tokio::select! {
                () = sleep(backoff) => {}
                () = self.buffer.stopped() => {}
            }
            backoff =
                (backoff + backoff / 2).min(LONGEST_BACKOFF.max(self.options.initial_backoff));
        }
    }

    fn taken(&self, batch: &Batch) {
        self.metrics.sent.inc_by(batch.events());
        if self.metrics.failing.set(0) == 1 {
            tracing::info!("the audit webhook takes events again");
        }
        self.buffer.delivered(batch);
    }
}

/// Lets so many batches pass in a second, and some at once after a pause.
struct Throttle {
    per_second: f32,
    burst: f32,
    left: f32,
    at: Instant,
}

impl Throttle {
    fn new((per_second, burst): (f32, u32)) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "nobody wants millions of batches at once")]
        let burst = burst.max(1) as f32;
        Self { per_second: per_second.max(0.001), burst, left: burst, at: Instant::now() }
    }

    async fn pass(&mut self, buffer: &Buffer) {
        let now = Instant::now();
        let gained = now.duration_since(self.at).as_secs_f32() * self.per_second;
        self.left = (self.left + gained).min(self.burst) - 1.0;
        self.at = now;
        if self.left < 0.0 {
            let missing = Duration::from_secs_f32(-self.left / self.per_second);
            tokio::select! {
                () = sleep(missing) => {}
                () = buffer.stopped() => {}
            }
        }
    }
}
