//! The container runtime interface: keeps the records of sandboxes and containers, and turns requests
//! into what the engine and the image store do.

mod error;
mod image;
mod image_transfer;
mod machine;
mod record;
mod spec;
