//! A runtime behind its socket.

use std::path::PathBuf;

use tonic::transport::{Channel, Endpoint};
use waybill_proto::cri::runtime_service_client::RuntimeServiceClient;

/// Which runtime is tested, and with which image.
#[derive(Clone, Debug)]
pub struct Target {
    /// The socket of the runtime.
    pub socket: PathBuf,
    /// An image that the runtime has, with the static program `/busybox`.
    pub image: String,
}

/// Why the suite could not run at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConformanceError {
    /// Nobody answers on the socket.
    #[error("the runtime at {socket} cannot be reached")]
    Unreachable {
        /// Where we looked.
        socket: PathBuf,
        /// What the connection said.
        #[source]
        source: tonic::transport::Error,
    },
    /// The container that the cases need could not be had.
    #[error("{step}: {}: {}", status.code(), status.message())]
    Refused {
        /// The call.
        step: &'static str,
        /// What the runtime answered.
        status: Box<tonic::Status>,
    },
    /// A plain session does not work, so nothing can be learnt from one with variables.
    #[error("a session without variables fails: {0}")]
    Session(String),
}

impl Target {
    pub(super) async fn connect(&self) -> Result<RuntimeServiceClient<Channel>, ConformanceError> {
        let unreachable =
            |source| ConformanceError::Unreachable { socket: self.socket.clone(), source };
        let address = format!("unix://{}", self.socket.display());
        let endpoint = Endpoint::from_shared(address).map_err(unreachable)?;
        endpoint.connect().await.map(RuntimeServiceClient::new).map_err(unreachable)
    }
}
