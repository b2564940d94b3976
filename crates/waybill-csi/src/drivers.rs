//! The drivers that come with Waybill, each behind the feature of its name.

#[cfg(feature = "aws")]
pub mod aws;
#[cfg(feature = "http")]
mod fields;
#[cfg(feature = "metadata")]
pub mod metadata;
#[cfg(feature = "mock")]
pub mod mock;
#[cfg(feature = "os")]
pub mod os;
#[cfg(feature = "provider")]
pub mod provider;
#[cfg(feature = "http")]
mod sessions;
#[cfg(feature = "vault")]
pub mod vault;
