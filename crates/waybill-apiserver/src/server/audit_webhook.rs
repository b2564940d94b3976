//! The service that gets audit events beside the files, as the configuration says it.

use std::{path::PathBuf, sync::Arc, time::Duration};

use super::{ServerError, during};
use crate::{
    audit::{Mode, Webhook, WebhookMetrics, WebhookOptions, WebhookTarget},
    clock::Clock,
    metrics::Metrics,
};

/// A service that gets audit events; names and defaults are upstream's.
#[derive(Clone, Debug)]
pub struct AuditWebhook {
    /// Where it is and who we are to it, as a kubeconfig.
    pub config_file: PathBuf,
    /// Who waits for it.
    pub mode: AuditWebhookMode,
    /// How many events may wait for it.
    pub batch_buffer_size: usize,
    /// How many events it gets at once.
    pub batch_max_size: usize,
    /// How long an event waits for others.
    pub batch_max_wait: Duration,
    /// How many batches it gets in a second, and how many at once after a pause; without a limit if there is none.
    pub batch_throttle: Option<(f32, u32)>,
    /// How long is waited before a batch is sent for the second time.
    pub initial_backoff: Duration,
}

/// Who waits for the service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuditWebhookMode {
    /// Nobody.
    #[default]
    Batch,
    /// The answer to a change, for five seconds at most.
    Blocking,
}

impl AuditWebhook {
    /// The service that `config_file` names, with upstream's defaults.
    pub fn new(config_file: PathBuf) -> Self {
        let WebhookOptions {
            mode: _,
            buffer_size,
            max_batch_size,
            max_batch_wait,
            throttle,
            initial_backoff,
        } = WebhookOptions::default();
        Self {
            config_file,
            mode: AuditWebhookMode::default(),
            batch_buffer_size: buffer_size,
            batch_max_size: max_batch_size,
            batch_max_wait: max_batch_wait,
            batch_throttle: throttle,
            initial_backoff,
        }
    }

    fn options(&self) -> WebhookOptions {
        WebhookOptions {
            mode: match self.mode {
                AuditWebhookMode::Batch => Mode::Batch,
                AuditWebhookMode::Blocking => Mode::Blocking,
            },
            buffer_size: self.batch_buffer_size,
            max_batch_size: self.batch_max_size,
            max_batch_wait: self.batch_max_wait,
            throttle: self.batch_throttle,
            initial_backoff: self.initial_backoff,
        }
    }
}

/// Begins to send to the service that `config` names.
pub(super) fn start(
    config: &AuditWebhook,
    metrics: &Metrics,
    clock: &Clock,
) -> Result<Arc<Webhook>, ServerError> {
    let step = || format!("setting up the audit webhook of {}", config.config_file.display());
    let target = WebhookTarget::read(&config.config_file).map_err(during(step()))?;
    let counts = WebhookMetrics::default();
    metrics.register(|registry| counts.register(registry));
    let webhook = Webhook::start(target, config.options(), counts, Arc::clone(clock));
    webhook.map(Arc::new).map_err(during(step()))
}
