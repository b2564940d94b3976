//! Events that tell users what happened to their pods.
