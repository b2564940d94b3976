//! A runtime behind its socket.

use std::{fmt, path::PathBuf, sync::Arc};

use tonic::transport::{Channel, Endpoint};
use waybill_proto::cri::runtime_service_client::RuntimeServiceClient;

/// Which runtime is tested, and with which image.
#[derive(Clone, Debug)]
pub struct Target {
    /// The socket of the runtime.
    pub socket: PathBuf,
    /// An image that the runtime has, with the static program `/busybox`.
    pub image: String,
    /// The runtime handler of the sandbox; empty for the default.
    pub handler: String,
    /// What becomes of a session's words when its variables travel in them.
    pub stamp: Option<Stamp>,
}

/// Makes the words of a session from its command and its variables.
#[derive(Clone)]
pub struct Stamp {
    /// Makes them.
    pub make: Arc<MakeWords>,
    /// The variable that sessions then have besides, which the suite passes over.
    pub adds: &'static str,
}

/// See [`Stamp`].
pub type MakeWords = dyn Fn(&[&str], &[(&str, &[u8])]) -> Vec<String> + Send + Sync;

impl fmt::Debug for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stamp").field("adds", &self.adds).finish_non_exhaustive()
    }
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
    /// A runtime that is asked for nothing special.
    pub fn new(socket: impl Into<PathBuf>, image: impl Into<String>) -> Self {
        Self { socket: socket.into(), image: image.into(), handler: String::new(), stamp: None }
    }

    pub(super) async fn connect(&self) -> Result<RuntimeServiceClient<Channel>, ConformanceError> {
        let unreachable =
            |source| ConformanceError::Unreachable { socket: self.socket.clone(), source };
        let address = format!("unix://{}", self.socket.display());
        let endpoint = Endpoint::from_shared(address).map_err(unreachable)?;
        endpoint.connect().await.map(RuntimeServiceClient::new).map_err(unreachable)
    }
}
