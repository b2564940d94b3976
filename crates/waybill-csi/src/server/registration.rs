//! How the kubelet learns of a driver: a socket of its own in a directory that the kubelet watches.

use std::{path::Path, sync::Arc};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, transport};
use tracing::{error, info};
use waybill_proto::registration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
    registration_server::{self, RegistrationServer},
};

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
    pub(super) async fn serve(
        self,
        socket: Socket,
        stop: CancellationToken,
    ) -> Result<(), transport::Error> {
        transport::Server::builder()
            .add_service(RegistrationServer::new(self))
            .serve_with_incoming_shutdown(socket.connections(stop.clone()), stop.cancelled_owned())
            .await
    }
}

#[tonic::async_trait]
impl registration_server::Registration for Registration {
    async fn get_info(
        &self,
        _request: Request<InfoRequest>,
    ) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(self.info.clone()))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let RegistrationStatus { plugin_registered, error } = request.into_inner();
        if plugin_registered {
            info!(driver = self.info.name, "the kubelet has registered the driver");
        } else {
            error!(driver = self.info.name, reason = error, "the kubelet refuses the driver");
            self.refused.send_replace(Some(format!("the kubelet refuses the driver: {error}")));
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
