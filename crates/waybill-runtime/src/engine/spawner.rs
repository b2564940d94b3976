//! The process that forks monitors and sandboxes, and the runtime's handle to it.

use std::io;

/// A handle to the spawner process. It ends with the runtime; monitors do not.
#[derive(Debug)]
pub struct Spawner {}

impl Spawner {
    /// Forks the spawner. Call it first thing in `main`, before any thread exists.
    pub fn start() -> io::Result<Self> {
        Ok(Self {})
    }
}
