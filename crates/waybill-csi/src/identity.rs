//! Whether a pod is who the kubelet says it is (CSI-46).
//!
//! The context of a call is the kubelet's word, and only root can reach the socket. Where that is not
//! enough, a driver asks for tokens of the pod's service account and has somebody check them who can:
//! the API server by a TokenReview, or the backend when it logs the pod in. Reading the claims of a
//! token is no check: anybody can write claims.

use crate::driver::{Call, FetchError};

/// Checks the pod behind a call.
pub trait IdentityCheck: Send + Sync {
    /// Refuses with [`FetchError::denied`] unless the pod is who it is said to be.
    fn check(&self, call: &Call) -> impl Future<Output = Result<(), FetchError>> + Send;
}

impl<I: IdentityCheck> IdentityCheck for &I {
    async fn check(&self, call: &Call) -> Result<(), FetchError> {
        (**self).check(call).await
    }
}

/// The kubelet's word is enough, or the backend checks the pod's token itself.
#[derive(Clone, Copy, Debug)]
pub struct Asserted;

impl IdentityCheck for Asserted {
    async fn check(&self, _call: &Call) -> Result<(), FetchError> {
        Ok(())
    }
}
