//! Volumes on a real kernel.
