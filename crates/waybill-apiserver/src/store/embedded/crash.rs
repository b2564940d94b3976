//! What a crash leaves.
