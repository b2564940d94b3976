//! The name of a request, which joins the audit log with the environment of an exec session.

use std::cell::RefCell;

use http::HeaderMap;
use uuid::{Builder, Uuid};
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
    let id = RANDOM.with_borrow_mut(RandomIds::next);
    let mut text = Uuid::encode_buffer();
    let text = id.hyphenated().encode_lower(&mut text);
    AuditId::parse(text).expect("a UUID is 36 printable characters")
}

thread_local! {
    static RANDOM: RefCell<RandomIds> = const { RefCell::new(RandomIds(Vec::new())) };
}

/// How many are asked of the kernel at once: a name for each read costs less than a system call then.
const AT_ONCE: usize = 64;

/// Random names that nobody has yet.
struct RandomIds(Vec<[u8; 16]>);

impl RandomIds {
    fn next(&mut self) -> Uuid {
        if self.0.is_empty() {
            let mut bytes = [0; 16 * AT_ONCE];
            if getrandom::fill(&mut bytes).is_err() {
                return Uuid::new_v4();
            }
            self.0.extend_from_slice(bytes.as_chunks().0);
        }
        self.0
            .pop()
            .map_or_else(Uuid::new_v4, |bytes| Builder::from_random_bytes(bytes).into_uuid())
    }
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
