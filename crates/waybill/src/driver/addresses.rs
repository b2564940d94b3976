//! Where drivers send tokens of pods.

use anyhow::Result;
use tracing::warn;
use waybill_csi::http::AllowedAddresses;

/// Where a driver may send what it has of pods.
#[derive(clap::Args)]
pub(crate) struct AddressArgs {
    /// Ask only this address, whatever classes say; may be given more than once. Without it whoever may change a class may send tokens of its pods to any other machine with TLS.
    #[arg(long, value_name = "URL")]
    allow_address: Vec<String>,
}

impl AddressArgs {
    pub(super) fn allowed(&self) -> Result<AllowedAddresses> {
        Ok(AllowedAddresses::only(self.allow_address.iter().map(String::as_str))?)
    }

    /// For drivers that have tokens to send.
    pub(super) fn warn(&self) {
        if self.allow_address.is_empty() {
            warn!(
                "classes may name any other machine for tokens of pods; --allow-address names the right ones"
            );
        }
    }
}
