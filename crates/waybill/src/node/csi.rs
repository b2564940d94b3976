//! How `waybill node` finds and calls drivers of variables.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Result;
use waybill_core::duration::parse_duration;
use waybill_node::CsiConfig;

use crate::state_dir::own_directory;

#[derive(clap::Args)]
pub(super) struct CsiArgs {
    /// Below it every driver of variables has a directory with its socket, csi.sock; `plugins` in the
    /// state directory by default.
    #[arg(long, value_name = "DIR")]
    csi_plugins_dir: Option<PathBuf>,

    /// Where drivers leave the sockets by which they register; `plugins_registry` in the state directory
    /// by default.
    #[arg(long, value_name = "DIR")]
    csi_registry_dir: Option<PathBuf>,

    /// How long a call to a driver of variables may take, if neither the driver nor the ProviderClass
    /// says.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "5s",
        value_parser = parse_timeout,
        allow_hyphen_values = true
    )]
    csi_env_injection_rpc_timeout: Duration,

    /// How often a call to a driver of variables is made again after one that failed.
    #[arg(long, value_name = "COUNT", default_value_t = 1, allow_hyphen_values = true)]
    csi_env_injection_rpc_retries: u32,

    /// The pause before a call is made again; each further one is twice as long.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "100ms",
        value_parser = parse_backoff,
        allow_hyphen_values = true
    )]
    csi_env_injection_retry_backoff: Duration,

    /// Give variables of drivers also to a runtime that may write them to a disk, as containerd does with every
    /// container's specification.
    #[arg(long)]
    csi_env_allow_disk: bool,
}

impl CsiArgs {
    /// What they mean for a node whose state is in `state`.
    pub(super) fn config(self, state: &Path) -> Result<CsiConfig> {
        let plugins = self.csi_plugins_dir.unwrap_or_else(|| state.join("plugins"));
        let registry = self.csi_registry_dir.unwrap_or_else(|| state.join("plugins_registry"));
        Ok(CsiConfig {
            plugins_dir: own_directory(&plugins)?,
            registry_dir: own_directory(&registry)?,
            rpc_timeout: self.csi_env_injection_rpc_timeout,
            rpc_retries: self.csi_env_injection_rpc_retries,
            retry_backoff: self.csi_env_injection_retry_backoff,
            allow_disk: self.csi_env_allow_disk,
        })
    }
}

fn parse_timeout(text: &str) -> Result<Duration, String> {
    let timeout = parse_duration(text).filter(|timeout| !timeout.is_zero());
    timeout.ok_or_else(|| "expected a duration above 0, such as 500ms or 5s".to_owned())
}

fn parse_backoff(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| "expected a duration, such as 100ms".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: CsiArgs,
    }

    fn parse(line: &str) -> Result<CsiConfig, String> {
        let line = format!("waybill {line}");
        let parsed = Cli::try_parse_from(line.split_whitespace());
        let state = tempfile::tempdir().unwrap();
        let config = parsed.map_err(|error| error.to_string())?.args.config(state.path());
        config.map_err(|error| error.to_string())
    }

    /// CSI-35
    #[test]
    fn calls_have_the_documents_defaults_csi_35() {
        let config = parse("").unwrap();
        assert_eq!(config.rpc_timeout, Duration::from_secs(5));
        assert_eq!(config.rpc_retries, 1);
        assert_eq!(config.retry_backoff, Duration::from_millis(100));
        assert!(config.plugins_dir.ends_with("plugins"));
        assert!(config.registry_dir.ends_with("plugins_registry"));
    }

    /// CSI-35
    #[test]
    fn no_retries_are_legal_and_negative_numbers_are_not_csi_35() {
        assert_eq!(parse("--csi-env-injection-rpc-retries 0").unwrap().rpc_retries, 0);
        let changed =
            parse("--csi-env-injection-rpc-timeout 1m30s --csi-env-injection-retry-backoff 0")
                .unwrap();
        assert_eq!(changed.rpc_timeout, Duration::from_secs(90));
        assert_eq!(changed.retry_backoff, Duration::ZERO);
        for bad in [
            "--csi-env-injection-rpc-retries -1",
            "--csi-env-injection-rpc-retries=-1",
            "--csi-env-injection-rpc-timeout -5s",
            "--csi-env-injection-rpc-timeout 0",
            "--csi-env-injection-rpc-timeout 5",
            "--csi-env-injection-retry-backoff -100ms",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
