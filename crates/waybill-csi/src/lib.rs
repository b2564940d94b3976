//! Drivers of environment variables: values from other systems, over CSI, in memory only.
//!
//! A driver implements [`driver::Driver`]: keys in, values out. Everything else that the proposal asks
//! of one is here: the gRPC services, registration with the kubelet, the allow-lists of a class, the
//! cache, rate limits, metrics and a graceful end.
//!
//! ```
//! # async fn example() -> Result<(), waybill_csi::server::ServerError> {
//! use waybill_core::secret::SecretBytes;
//! use waybill_csi::{
//!     driver::{Answer, Call, Driver, FetchError, Query},
//!     server::{Config, Server},
//! };
//!
//! struct Greeting;
//!
//! impl Driver for Greeting {
//!     fn name(&self) -> &str {
//!         "greeting.example.com"
//!     }
//!
//!     fn backend(&self) -> &'static str {
//!         "greeting"
//!     }
//!
//!     async fn fetch(&self, call: &Call, queries: &[Query]) -> Result<Vec<Answer>, FetchError> {
//!         let greet = |query: &Query| match query.key.as_str() {
//!             "hello" => Ok(SecretBytes::from(format!("hello, {}", call.pod.name).into_bytes())),
//!             key => Err(FetchError::not_found(format!("there is no greeting {key:?}"))),
//!         };
//!         Ok(queries.iter().map(greet).collect())
//!     }
//! }
//!
//! let server = Server::start(Greeting, Config::new("/run/greeting/csi.sock")).await?;
//! # server.stop().await;
//! # Ok(())
//! # }
//! ```

mod answer;
pub mod cache;
pub mod driver;
pub mod drivers;
mod guard;
#[cfg(feature = "http")]
pub mod http;
pub mod identity;
mod in_flight;
mod metrics;
pub mod rate;
mod secret_text;
pub mod server;
