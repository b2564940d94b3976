//! The lease by which the node says that it lives.

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference},
};
use kube::{Api, Client, api::PostParams};

const NAMESPACE: &str = "kube-node-lease";

/// After this long without renewal the node is taken for dead.
const DURATION_SECONDS: i32 = 40;

/// Renews the lease of one node.
pub(super) struct LeaseKeeper {
    leases: Api<Lease>,
    node: String,
    /// As it was written last.
    current: Option<Lease>,
}

impl LeaseKeeper {
    pub(super) fn new(client: Client, node: &str) -> Self {
        Self { leases: Api::namespaced(client, NAMESPACE), node: node.to_owned(), current: None }
    }

    /// Says that the node lives at `now`.
    pub(super) async fn renew(
        &mut self,
        now: Timestamp,
        node_uid: &str,
    ) -> Result<(), kube::Error> {
        let current = match self.current.take() {
            Some(current) => Some(current),
            None => self.leases.get_opt(&self.node).await?,
        };
        let written = match current {
            Some(mut lease) => {
                self.fill(&mut lease, now, node_uid);
                self.leases.replace(&self.node, &PostParams::default(), &lease).await
            }
            None => {
                let mut lease = Lease::default();
                lease.metadata.name = Some(self.node.clone());
                lease.metadata.namespace = Some(NAMESPACE.to_owned());
                self.fill(&mut lease, now, node_uid);
                self.leases.create(&PostParams::default(), &lease).await
            }
        };
        // After a conflict it is read again.
        self.current = Some(written?);
        Ok(())
    }

    /// The node was deleted, and its lease may have been as well.
    pub(super) fn forget(&mut self) {
        self.current = None;
    }

    fn fill(&self, lease: &mut Lease, now: Timestamp, node_uid: &str) {
        own(&mut lease.metadata, &self.node, node_uid);
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        spec.holder_identity = Some(self.node.clone());
        spec.lease_duration_seconds = Some(DURATION_SECONDS);
        spec.renew_time = Some(MicroTime(now));
    }
}

/// The lease goes with its node.
fn own(metadata: &mut ObjectMeta, node: &str, node_uid: &str) {
    metadata.owner_references = Some(vec![OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node.to_owned(),
        uid: node_uid.to_owned(),
        ..OwnerReference::default()
    }]);
}
