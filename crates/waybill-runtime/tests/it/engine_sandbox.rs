//! Sandboxes and their namespaces.
