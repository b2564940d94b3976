//! `pods/portforward`: connections into a pod.

use waybill_api::status::Status;

use super::session::{AskedSession, SessionOptions, refused};
use crate::{
    api::Api,
    proxy::{options::PodPortForwardOptions, target::NodeTarget},
};

impl SessionOptions for PodPortForwardOptions {
    fn read(query: &str) -> Result<Self, Status> {
        Self::from_query(query).map_err(refused)
    }

    fn target(self, _: &Api, asked: &AskedSession<'_>) -> Result<NodeTarget, Status> {
        Ok(NodeTarget::port_forward(asked.pod_path(), &self))
    }
}
