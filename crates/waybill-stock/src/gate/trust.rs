//! What is believed about callers at the moment, kept current.

use std::{
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http::HeaderMap;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use serde_json::json;
use tokio::time::{sleep, timeout};
use waybill_core::chain::Chain;

use super::{
    callers::{Asker, Caller, FrontProxy, Trusted},
    tls::{self, Tls, TlsError, Watched},
};

/// Where API servers tell extension servers about their front proxy.
const NAMESPACE: &str = "kube-system";
const CONFIG_MAP: &str = "extension-apiserver-authentication";

/// How often it is read again.
const REFRESH: Duration = Duration::from_secs(30);

/// While nobody is believed yet.
const RETRY: Duration = Duration::from_secs(1);

/// How long a read may take.
const LIMIT: Duration = Duration::from_secs(10);

/// Whose questions are answered.
pub(super) struct Trust {
    caller: Caller,
    client: Client,
    now: Mutex<Now>,
}

struct Now {
    trusted: Trusted,
    fault: Option<String>,
}

impl Trust {
    pub(super) fn new(caller: Caller, client: Client) -> Self {
        let (trusted, fault) = match &caller {
            Caller::Aggregator => (
                Trusted::Nobody,
                Some("the front proxy of the API server is not known yet".to_owned()),
            ),
            Caller::Mtls { names, .. } => (Trusted::Names(names.clone()), None),
            Caller::Anyone => (Trusted::Anyone, None),
        };
        Self { caller, client, now: Mutex::new(Now { trusted, fault }) }
    }

    /// What can be known at once.
    pub(super) fn start(&self, tls: &Tls) -> Result<(), TlsError> {
        match &self.caller {
            Caller::Mtls { authority, .. } => tls::believe_file(tls, authority),
            Caller::Aggregator => Ok(()),
            Caller::Anyone => {
                tracing::warn!(
                    "--caller=anyone: whoever reaches this port can have sessions signed that no user began"
                );
                Ok(())
            }
        }
    }

    /// Who sent a request; `None` for somebody who is not believed.
    pub(super) fn asker(&self, client: Option<&str>, headers: &HeaderMap) -> Option<Asker> {
        self.lock().trusted.asker(client, headers)
    }

    /// Whether anybody may ask, so that there is nothing to show.
    pub(super) fn is_open(&self) -> bool {
        self.caller == Caller::Anyone
    }

    /// Why nobody can be believed; `None` if somebody can.
    pub(super) fn fault(&self) -> Option<String> {
        self.lock().fault.clone()
    }

    /// Keeps current what is believed, for ever.
    pub(super) async fn follow(&self, tls: Arc<Tls>) {
        match &self.caller {
            Caller::Aggregator => self.follow_front_proxy(&tls).await,
            Caller::Mtls { authority, .. } => follow_file(&tls, authority).await,
            Caller::Anyone => {}
        }
    }

    async fn follow_front_proxy(&self, tls: &Tls) {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), NAMESPACE);
        loop {
            let read = timeout(LIMIT, api.get(CONFIG_MAP)).await;
            let taken = match read {
                Ok(Ok(map)) => self.take(FrontProxy::read(&json!(map.data)), tls),
                Ok(Err(error)) => Err(format!("{CONFIG_MAP} cannot be read: {error}")),
                Err(_) => Err("the API server did not answer".to_owned()),
            };
            if let Err(fault) = taken {
                tracing::warn!(fault, "the front proxy of the API server is not known");
                let mut now = self.lock();
                // What was believed stays so: the API server may only be away for a moment.
                if now.trusted == Trusted::Nobody {
                    now.fault = Some(fault);
                }
            }
            let wait = if self.fault().is_some() { RETRY } else { REFRESH };
            sleep(wait).await;
        }
    }

    fn take(&self, found: Option<FrontProxy>, tls: &Tls) -> Result<(), String> {
        let found = found.ok_or(
            "the API server has no front proxy: start it with \
            --requestheader-client-ca-file, or the gate with --caller=mtls",
        )?;
        let fresh = Trusted::FrontProxy(found);
        if self.lock().trusted == fresh {
            return Ok(());
        }
        if let Trusted::FrontProxy(proxy) = &fresh {
            tls.believe(proxy.authorities.as_bytes())
                .map_err(|error| format!("its front proxy is not usable: {}", Chain(&error)))?;
        }
        *self.lock() = Now { trusted: fresh, fault: None };
        tracing::info!("the front proxy of the API server is known");
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn follow_file(tls: &Tls, authority: &Path) {
    let mut file = Watched::new([authority.to_owned()]);
    loop {
        if let Err(error) = file.refresh(|| tls::believe_file(tls, authority)) {
            tracing::warn!(error = %Chain(&error), "the authority of callers cannot be read again");
        }
        sleep(super::REFRESH).await;
    }
}
