//! A plugin whose node service is the caller's own, with the sockets and the registration of a driver.

use std::{path::Path, sync::Arc, time::Duration};

use tokio::{sync::watch, time::timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::transport;
use tracing::warn;
use waybill_proto::csi::{
    identity_server::IdentityServer,
    node_server::{Node, NodeServer},
};

use super::{
    MESSAGE_BYTES, ServerError, check_name, plugin::Plugin, registration::Registration, report,
    socket::Socket,
};

/// What calls under way may take when the plugin stops.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// A plugin that serves. On drop it ends without waiting for calls.
pub struct PluginServer {
    tasks: TaskTracker,
    stop: CancellationToken,
    failure: watch::Receiver<Option<String>>,
}

impl PluginServer {
    /// Serves `node` at `socket`, and registers as `name` in `registry`; kubelets find the plugin at `endpoint`.
    pub fn start<N: Node>(
        (name, version): (&str, &str),
        node: N,
        socket: &Path,
        registry: &Path,
        endpoint: &Path,
    ) -> Result<Self, ServerError> {
        check_name(name)?;
        let bind = |path: &Path| {
            let place = path.display().to_string();
            Socket::bind(path).map_err(|source| ServerError::Listen { place, source })
        };
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let (fail, failure) = watch::channel(None);
        let fail = Arc::new(fail);
        let connections = bind(socket)?.connections(stop.clone());
        let plugin = Plugin { name: name.to_owned(), version: version.to_owned() };
        let serving = transport::Server::builder()
            .add_service(IdentityServer::new(plugin))
            .add_service(NodeServer::new(node).max_decoding_message_size(MESSAGE_BYTES))
            .serve_with_incoming_shutdown(connections, stop.clone().cancelled_owned());
        tasks.spawn(report(serving, Arc::clone(&fail)));
        let registration = Registration::new(name, endpoint, fail);
        let registry = bind(&registry.join(format!("{name}-reg.sock")))?;
        tasks.spawn(registration.serve(registry, stop.clone()));
        Ok(Self { tasks, stop, failure })
    }

    /// Ends when the plugin fails, or when the kubelet refuses it.
    pub async fn failed(&self) -> String {
        match self.failure.clone().wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_default(),
            Err(_) => "the server ended".to_owned(),
        }
    }

    /// Deregisters, and lets calls under way end for a while.
    pub async fn stop(self) {
        self.stop.cancel();
        self.tasks.close();
        if timeout(STOP_LIMIT, self.tasks.wait()).await.is_err() {
            warn!("calls under way are given up");
        }
    }
}

impl Drop for PluginServer {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
