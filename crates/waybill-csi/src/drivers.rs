//! The drivers that come with Waybill, each behind the feature of its name.

#[cfg(feature = "provider")]
pub mod provider;
#[cfg(feature = "vault")]
pub mod vault;
