//! The flags of the service that gets audit events; names and defaults are upstream's.

use std::{path::PathBuf, time::Duration};

use waybill_apiserver::{AuditWebhook, AuditWebhookMode};

#[derive(clap::Args)]
#[command(next_help_heading = "Audit webhook")]
pub(crate) struct AuditWebhookArgs {
    /// A service that gets audit events beside the file, as a kubeconfig: its URL and authority, and our credential.
    #[arg(long, value_name = "FILE")]
    audit_webhook_config_file: Option<PathBuf>,

    /// Who waits for the service.
    #[arg(long, value_name = "MODE", default_value = "batch")]
    audit_webhook_mode: Mode,

    /// How many events may wait for the service. What finds no place is lost for it, and counted.
    #[arg(long, value_name = "COUNT", default_value_t = 10_000)]
    audit_webhook_batch_buffer_size: usize,

    /// How many events the service gets at once.
    #[arg(long, value_name = "COUNT", default_value_t = 400)]
    audit_webhook_batch_max_size: usize,

    /// How long an event waits for others, as 30s.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    audit_webhook_batch_max_wait: Duration,

    /// Whether the service gets so many batches only.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    audit_webhook_batch_throttle_enable: bool,

    /// How many batches the service gets in a second.
    #[arg(long, value_name = "COUNT", default_value_t = 10.0)]
    audit_webhook_batch_throttle_qps: f32,

    /// How many batches the service gets at once after a pause.
    #[arg(long, value_name = "COUNT", default_value_t = 15)]
    audit_webhook_batch_throttle_burst: u32,

    /// How long is waited before a batch is sent for the second time; then half as long again each time, up to a minute.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    audit_webhook_initial_backoff: Duration,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Mode {
    /// Nobody.
    Batch,
    /// The answer to a change, for five seconds at most.
    Blocking,
}

impl AuditWebhookArgs {
    /// What the flags mean; nothing without a file.
    pub(crate) fn config(self) -> Option<AuditWebhook> {
        let qps = self.audit_webhook_batch_throttle_qps;
        let throttle = (qps, self.audit_webhook_batch_throttle_burst);
        Some(AuditWebhook {
            config_file: self.audit_webhook_config_file?,
            mode: match self.audit_webhook_mode {
                Mode::Batch => AuditWebhookMode::Batch,
                Mode::Blocking => AuditWebhookMode::Blocking,
            },
            batch_buffer_size: self.audit_webhook_batch_buffer_size,
            batch_max_size: self.audit_webhook_batch_max_size,
            batch_max_wait: self.audit_webhook_batch_max_wait,
            batch_throttle: Some(throttle)
                .filter(|_| self.audit_webhook_batch_throttle_enable && qps > 0.0),
            initial_backoff: self.audit_webhook_initial_backoff,
        })
    }
}

/// A time as Go writes it: numbers with `h`, `m`, `s` or `ms`, one after another.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("expected a time such as 30s, 1m30s or 500ms, found {text:?}");
    let (mut rest, mut total) = (text, Duration::ZERO);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let (number, unit) = rest.split_at(digits);
        let number: u32 = number.parse().map_err(|_| wrong())?;
        let end = unit.find(|c: char| c.is_ascii_digit()).unwrap_or(unit.len());
        let (unit, after) = unit.split_at(end);
        let one = match unit {
            "h" => Duration::from_secs(3600),
            "m" => Duration::from_secs(60),
            "s" => Duration::from_secs(1),
            "ms" => Duration::from_millis(1),
            _ => return Err(wrong()),
        };
        let more = one.checked_mul(number).ok_or_else(wrong)?;
        total = total.checked_add(more).ok_or_else(wrong)?;
        rest = after;
    }
    if text.is_empty() { Err(wrong()) } else { Ok(total) }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        webhook: AuditWebhookArgs,
    }

    fn parse(line: &str) -> Option<AuditWebhook> {
        let words = format!("waybill {line}");
        Cli::try_parse_from(words.split_whitespace()).unwrap().webhook.config()
    }

    #[test]
    fn defaults_are_those_of_the_server() {
        assert!(parse("").is_none());
        let given = parse("--audit-webhook-config-file /f").unwrap();
        let usual = AuditWebhook::new("/f".into());
        assert_eq!(format!("{given:?}"), format!("{usual:?}"));
        let off = "--audit-webhook-config-file /f --audit-webhook-batch-throttle-enable=false";
        assert_eq!(parse(off).unwrap().batch_throttle, None);
    }

    #[test]
    fn times_are_written_as_go_does() {
        let seconds = |text| parse_duration(text).map(|it| it.as_secs_f64());
        assert_eq!(seconds("30s"), Ok(30.0));
        assert_eq!(seconds("1h1m30s500ms"), Ok(3690.5));
        for wrong in ["", "30", "s", "1x", "-1s", "1.5s", "99999999999s"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
