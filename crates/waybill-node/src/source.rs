//! Where pods come from: the API server, and files in a directory.
