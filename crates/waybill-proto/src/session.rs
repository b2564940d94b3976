//! What travels beside the messages about sessions.

/// The metadata of an `Attach` call that holds the audit ID of the request for it. `AttachRequest` has no
/// field for that; runtimes that do not know the metadata pass over it.
pub const AUDIT_ID_METADATA: &str = "waybill-audit-id";
