//! Certificates while the server runs: what it shows to clients and to nodes is renewed in good time.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tokio_util::sync::CancellationToken;
use waybill_core::chain::Chain;

use super::{ServerError, during};
use crate::{
    api::Api,
    pki::{Pki, Refreshed},
    proxy::connect::node_tls,
};

/// Between two looks at how long certificates are still good.
const BETWEEN_LOOKS: Duration = Duration::from_secs(3600);

/// TLS towards nodes, with the certificate that we have now.
pub(super) fn tls_to_nodes(pki: &Pki) -> Result<Arc<ClientConfig>, ServerError> {
    let step = "setting up TLS towards nodes";
    let client = pki.node_client();
    let mut roots = RootCertStore::empty();
    roots.add(pki.cluster_authority().clone()).map_err(during(step))?;
    let chain = CertificateDer::pem_slice_iter(client.certificate.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(during(step))?;
    let key = PrivateKeyDer::from_pem_slice(client.key.expose()).map_err(during(step))?;
    node_tls(roots, chain, key).map_err(during(step))
}

/// Certificates that end soon are renewed while the server runs.
pub(super) async fn renew(api: Arc<Api>, pki: Arc<Pki>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(BETWEEN_LOOKS) => {}
        }
        if let Err(error) = renew_now(&api, &pki, (api.clock)()) {
            let error = Chain(&error);
            tracing::error!(%error, "certificates could not be renewed");
        }
    }
}

/// Connections that are open keep what they have; new ones, from clients and to nodes, use the new.
pub(super) fn renew_now(api: &Api, pki: &Pki, now: Timestamp) -> Result<(), ServerError> {
    let refreshed = pki.refresh(now);
    // Whatever became of the others, and of the last time.
    api.proxy.set_tls(tls_to_nodes(pki)?);
    if refreshed.map_err(during("renewing certificates"))? == Refreshed::Replaced {
        tracing::info!("certificates were renewed");
    }
    Ok(())
}
