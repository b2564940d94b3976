//! The store that lives in etcd.
