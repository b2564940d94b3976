//! What the runtime can do, asked now and then.

use std::time::Duration;

use tokio::{sync::Mutex, time::Instant};
use tonic::Status;
use waybill_proto::cri;

use super::containers::limited;
use crate::cri::Runtime;

/// How long an answer is believed. A runtime that is replaced by a newer one is noticed after that.
const LIFETIME: Duration = Duration::from_secs(30);

/// Whether `ExecRequest.envs` takes effect (OP-9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExecEnvs {
    Supported,
    Unsupported,
}

/// What is known about the runtime's features.
#[derive(Default)]
pub(super) struct Features(Mutex<Option<(Instant, ExecEnvs)>>);

impl Features {
    pub(super) async fn exec_envs(&self, runtime: &Runtime) -> Result<ExecEnvs, Status> {
        let mut known = self.0.lock().await;
        if let Some((at, answer)) = *known
            && at.elapsed() < LIFETIME
        {
            return Ok(answer);
        }
        let request = cri::StatusRequest { verbose: false };
        let status = runtime.containers().status(limited(request)).await?.into_inner();
        let supported = status.features.is_some_and(|features| features.exec_envs);
        let answer = if supported { ExecEnvs::Supported } else { ExecEnvs::Unsupported };
        *known = Some((Instant::now(), answer));
        Ok(answer)
    }
}
