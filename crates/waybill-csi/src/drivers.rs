//! The drivers that come with Waybill, each behind the feature of its name.

#[cfg(feature = "vault")]
pub mod vault;
