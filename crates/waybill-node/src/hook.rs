//! Lifecycle hooks: what a container does right after its start and right before its end.
