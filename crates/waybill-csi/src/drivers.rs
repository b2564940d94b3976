//! The drivers that come with Waybill, each behind the feature of its name.

#[cfg(feature = "mock")]
pub mod mock;
#[cfg(feature = "os")]
pub mod os;
