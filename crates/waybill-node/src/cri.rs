//! The container runtime, over CRI v1: ours or any other.

mod calls;
pub(crate) mod changes;
pub(crate) mod container;
pub(crate) mod dns;
pub(crate) mod hosts;
pub(crate) mod image;
pub(crate) mod labels;
pub(crate) mod observe;
pub(crate) mod resources;
pub(crate) mod sandbox;
mod security;
mod termination;
pub(crate) mod words;

use std::path::{Path, PathBuf};

use tonic::transport::{Channel, Endpoint};
use waybill_proto::cri::{
    image_service_client::ImageServiceClient, runtime_service_client::RuntimeServiceClient,
};

/// As large as runtimes send.
const MESSAGE_BYTES: usize = 16 << 20;

/// A runtime whose socket we have. Clones share one connection, which is opened again when it is lost.
#[derive(Clone, Debug)]
pub(crate) struct Runtime {
    channel: Channel,
}

impl Runtime {
    /// Prepares the connection; it is made with the first call.
    pub(crate) fn at(socket: &Path) -> Result<Self, RuntimeSocketError> {
        let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display()))
            .map_err(|source| RuntimeSocketError { socket: socket.to_owned(), source })?;
        Ok(Self { channel: endpoint.connect_lazy() })
    }

    /// Sandboxes and containers.
    pub(crate) fn containers(&self) -> RuntimeServiceClient<Channel> {
        RuntimeServiceClient::new(self.channel.clone())
            .max_decoding_message_size(MESSAGE_BYTES)
            .max_encoding_message_size(MESSAGE_BYTES)
    }

    /// Images.
    pub(crate) fn images(&self) -> ImageServiceClient<Channel> {
        ImageServiceClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE_BYTES)
    }
}

/// The path cannot be that of a socket.
#[derive(Debug, thiserror::Error)]
#[error("cannot use {} as the runtime's socket", socket.display())]
pub(crate) struct RuntimeSocketError {
    socket: PathBuf,
    #[source]
    source: tonic::transport::Error,
}
