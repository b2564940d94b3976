//! `pods/attach`: the streams of a container that runs.

use waybill_api::{exec::SessionKind, status::Status};

use super::session::{AskedSession, SessionOptions, refused};
use crate::{
    api::Api,
    proxy::{options::PodAttachOptions, target::NodeTarget},
};

impl SessionOptions for PodAttachOptions {
    fn read(query: &str) -> Result<Self, Status> {
        Self::from_query(query).map_err(refused)
    }

    fn target(self, api: &Api, asked: &AskedSession<'_>) -> Result<NodeTarget, Status> {
        let container = asked.container(&self.container)?;
        let target = NodeTarget::attach(asked.pod_path(), &container, &self);
        asked.signed(api, SessionKind::Attach, &container, target)
    }
}
