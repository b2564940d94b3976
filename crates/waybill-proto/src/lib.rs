//! The gRPC messages of CRI, CSI, plugin registration and providers.
