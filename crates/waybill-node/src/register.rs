//! The node towards the API server: its object, its status and its lease.
