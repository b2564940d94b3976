//! The name of a request, which joins the audit log with the environment of an exec session.

use http::HeaderMap;
use uuid::Uuid;
use waybill_core::id::AuditId;

/// The header that carries the name, in requests of a front proxy and in every answer.
pub(crate) const HEADER: &str = "audit-id";

/// Who is at the other end of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// Anyone. What they claim about the request is not believed.
    Direct,
    /// A proxy that proved by its certificate that it may speak for others.
    TrustedFrontProxy,
}

/// The name of the request with these headers.
///
/// Upstream takes the header from everyone, which lets callers choose the key that sessions are
/// joined by. Here it counts only from a front proxy, and only if it is an audit ID (OP-11).
pub(crate) fn choose_id(headers: &HeaderMap, peer: Peer) -> AuditId {
    let claimed = || AuditId::parse(headers.get(HEADER)?.to_str().ok()?).ok();
    match peer {
        Peer::Direct => mint_id(),
        Peer::TrustedFrontProxy => claimed().unwrap_or_else(mint_id),
    }
}

/// A name that no other request has.
pub(crate) fn mint_id() -> AuditId {
    AuditId::parse(&Uuid::new_v4().to_string()).expect("a UUID is 36 printable characters")
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn chosen(value: &[u8], peer: Peer) -> String {
        let value = HeaderValue::from_bytes(value).unwrap();
        choose_id(&HeaderMap::from_iter([(HEADER.parse().unwrap(), value)]), peer).to_string()
    }

    #[track_caller]
    fn check_minted(id: &str) {
        assert_eq!(Uuid::parse_str(id).unwrap().get_version_num(), 4, "{id}");
    }

    #[test]
    fn only_a_front_proxy_names_requests_op_11() {
        assert_eq!(chosen(b"chosen", Peer::TrustedFrontProxy), "chosen");
        check_minted(&chosen(b"chosen", Peer::Direct));
        check_minted(choose_id(&HeaderMap::new(), Peer::TrustedFrontProxy).as_str());
    }

    #[test]
    fn a_claim_that_is_no_audit_id_is_not_taken_op_11() {
        for bad in [&b"a b"[..], b"", b"\xff", &[b'x'; 65]] {
            check_minted(&chosen(bad, Peer::TrustedFrontProxy));
        }
    }

    #[test]
    fn every_request_has_its_own_name_exec_21() {
        assert_ne!(mint_id(), mint_id());
    }
}
