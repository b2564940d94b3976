//! Messages that hold values or credentials wipe them when they are dropped.
//!
//! So nothing of them is left by whoever makes a message, by the client and the server that encode it, and by
//! those who decode it and give up. The buffers of HTTP/2 below are not ours to wipe.

use std::mem::take;

use waybill_core::secret::SecretBytes;

use crate::{
    csi::{EnvVarResult, NodeGetEnvVarsRequest, NodePublishVolumeRequest},
    provider::File,
};

/// The entry of a pod's context that holds tokens.
const TOKENS: &str = "csi.storage.k8s.io/serviceAccount.tokens";

impl Drop for EnvVarResult {
    fn drop(&mut self) {
        wipe(&mut self.value);
    }
}

impl Drop for File {
    fn drop(&mut self) {
        wipe(&mut self.contents);
    }
}

impl Drop for NodeGetEnvVarsRequest {
    fn drop(&mut self) {
        if let Some(tokens) = self.pod_context.remove(TOKENS) {
            wipe(&mut tokens.into_bytes());
        }
    }
}

impl Drop for NodePublishVolumeRequest {
    fn drop(&mut self) {
        let tokens = self.volume_context.remove(TOKENS).into_iter();
        let secrets = take(&mut self.secrets).into_values();
        tokens.chain(secrets).for_each(|text| wipe(&mut text.into_bytes()));
    }
}

/// What was taken over is not here any more.
fn wipe(bytes: &mut Vec<u8>) {
    drop(SecretBytes::from(take(bytes)));
}
