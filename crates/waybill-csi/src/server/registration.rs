//! How the kubelet learns of a driver: a socket of its own in a directory that the kubelet watches.

mod unary;

use std::{path::Path, sync::Arc};

use futures_util::StreamExt;
use prost::Message;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info};
use waybill_proto::registration::{PluginInfo, RegistrationStatus, RegistrationStatusResponse};

use super::socket::Socket;

/// Versions of the interface; kubelets take any of the first.
const VERSIONS: &[&str] = &["1.0.0"];

/// The service that a kubelet calls when it has found the socket.
pub(super) struct Registration {
    info: PluginInfo,
    refused: Arc<watch::Sender<Option<String>>>,
}

impl Registration {
    /// Whoever reads `refused` learns that the kubelet does not take the driver.
    pub(super) fn new(
        name: &str,
        endpoint: &Path,
        refused: Arc<watch::Sender<Option<String>>>,
    ) -> Self {
        let info = PluginInfo {
            r#type: "CSIPlugin".to_owned(),
            name: name.to_owned(),
            endpoint: endpoint.display().to_string(),
            supported_versions: VERSIONS.iter().map(|version| (*version).to_owned()).collect(),
        };
        Self { info, refused }
    }

    /// Serves until `stop`; then the socket is gone, which deregisters the driver.
    pub(super) async fn serve(self, socket: Socket, stop: CancellationToken) {
        let serving = socket.connections(stop.clone()).for_each_concurrent(None, async |found| {
            let Ok(mut connection) = found else { return };
            let answering = unary::answer_calls(&mut connection, |message| self.answer(message));
            if let Some(Err(error)) = stop.run_until_cancelled(answering).await {
                debug!(%error, "a caller of the registration socket was not understood");
            }
        });
        serving.await;
    }

    /// There are two calls, and which one this is shows in its message: who asks for the plugin's name says nothing, and
    /// who tells how registration went does.
    fn answer(&self, message: &[u8]) -> Vec<u8> {
        if message.is_empty() {
            return self.info.encode_to_vec();
        }
        if let Ok(RegistrationStatus { plugin_registered, error }) =
            RegistrationStatus::decode(message)
        {
            if plugin_registered {
                info!(driver = self.info.name, "the kubelet has registered the driver");
            } else {
                error!(driver = self.info.name, reason = error, "the kubelet refuses the driver");
                self.refused.send_replace(Some(format!("the kubelet refuses the driver: {error}")));
            }
        }
        RegistrationStatusResponse {}.encode_to_vec()
    }
}
