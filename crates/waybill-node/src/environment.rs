//! The environment of a container: a pure plan of what its spec asks for, and one resolver for each source.
