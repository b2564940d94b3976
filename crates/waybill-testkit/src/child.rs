//! A process that ends with its owner.

use std::process::{Child, Command};

/// Killed on drop, as `kill -9` does it.
#[derive(Debug)]
pub(crate) struct Killed(Child);

impl Killed {
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let program = command.get_program().display().to_string();
        Self(command.spawn().unwrap_or_else(|error| panic!("{program} does not start: {error}")))
    }

    pub(crate) fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    pub(crate) fn get_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        self.kill();
    }
}
