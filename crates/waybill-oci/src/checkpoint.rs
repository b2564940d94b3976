//! `checkpoint`: the memory of a container with values must not become files.

use std::path::Path;

use crate::{bundle::Bundle, container::Container, fault::Fault, node::Node};

/// Refuses it for a container whose references became values. One that is not found is the runtime's to
/// complain about.
pub(crate) fn checkpoint(node: &Node, id: &str, root: Option<&Path>) -> Result<(), Fault> {
    let default_root = node.default_root();
    let root = root.unwrap_or(&default_root);
    let Some(container) = Container::find(root, id) else {
        return if root.join(id).exists() { Err(Fault::Checkpoint) } else { Ok(()) };
    };
    match Bundle::read(&container.bundle) {
        Ok(bundle) if bundle.references().is_empty() => Ok(()),
        Ok(_) | Err(_) => Err(Fault::Checkpoint),
    }
}
