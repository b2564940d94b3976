//! The drivers that come with Waybill, each behind the feature of its name.

#[cfg(feature = "aws")]
pub mod aws;
#[cfg(any(feature = "aws", feature = "vault"))]
mod fields;
#[cfg(feature = "provider")]
pub mod provider;
#[cfg(any(feature = "aws", feature = "vault"))]
mod sessions;
#[cfg(feature = "vault")]
pub mod vault;
