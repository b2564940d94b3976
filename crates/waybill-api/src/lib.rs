//! The API side of the five proposals: types, feature gates and validation.
//!
//! Objects arrive as JSON documents; this crate takes typed views of the parts it judges and
//! gathers every field error, as Kubernetes does, before anything is refused. Domain rules live in
//! `waybill-core`. No IO, no async.

pub mod exec;
pub mod field;
pub mod gates;
pub mod names;
pub mod node;
pub mod pod;
pub mod provider_class;
pub mod quantity;
pub mod status;
pub mod stock;
pub mod trace;
