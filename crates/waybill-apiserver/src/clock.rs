//! What time it is.

use std::sync::Arc;

use jiff::Timestamp;

/// Tells the time; tests have their own.
pub(crate) type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;
