//! What survives the death of a runtime or a monitor.
