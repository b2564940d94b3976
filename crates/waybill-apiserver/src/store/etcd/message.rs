//! The messages of etcd's v3 API that we use, with the fields that we use.
//!
//! `cargo xtask gen` writes them from the description that the usual crate carries, because that crate needs `protoc` to
//! build (ADR 0058). Fields that are left out are skipped on reading. Where the description has a `oneof`, we have
//! optional fields of which one is set: the bytes are the same. No `Debug` here prints a value.

#[rustfmt::skip]
#[allow(dead_code, unreachable_pub, clippy::use_self, reason = "generated")]
mod generated;

use std::fmt;

pub(super) use self::generated::{
    AuthenticateRequest, AuthenticateResponse, CompactionRequest, CompactionResponse, Compare,
    DeleteRangeRequest, Event as KeyEvent, KeyValue, PutRequest, RangeRequest, RangeResponse,
    RequestOp, ResponseHeader, TxnRequest, TxnResponse, WatchCreateRequest, WatchRequest,
    WatchResponse,
    compare::{CompareResult, CompareTarget},
    event::EventType,
};
use crate::store::Length;

impl fmt::Debug for KeyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyValue")
            .field("key", &self.key)
            .field("mod_revision", &self.mod_revision)
            .field("version", &self.version)
            .field("value", &Length(self.value.len()))
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for PutRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PutRequest")
            .field("key", &self.key)
            .field("value", &Length(self.value.len()))
            .finish()
    }
}

impl fmt::Debug for AuthenticateRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthenticateRequest").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for AuthenticateResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthenticateResponse").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use prost::Message;

    use super::*;

    #[test]
    fn a_condition_on_an_absent_key_states_its_zero() {
        let compare = Compare {
            result: CompareResult::Equal.into(),
            target: CompareTarget::Mod.into(),
            key: Bytes::from_static(b"k"),
            mod_revision: Some(0),
        };
        // target 2, key "k", and field 6 present although it is 0, as a set `oneof` has it.
        assert_eq!(compare.encode_to_vec(), [0x10, 2, 0x1a, 1, b'k', 0x30, 0]);
    }

    #[test]
    fn debug_output_never_shows_a_value() {
        let value = Bytes::from_static(b"hunter2");
        let kv = KeyValue { value: value.clone(), ..KeyValue::default() };
        let put = PutRequest { key: Bytes::new(), value };
        let event = KeyEvent { kv: Some(kv), ..KeyEvent::default() };
        let op = RequestOp { request_put: Some(put), ..RequestOp::default() };
        let login = AuthenticateRequest { name: String::new(), password: "hunter2".into() };
        let token = AuthenticateResponse { token: "hunter2".into() };
        let shown = format!("{event:?} {op:?} {login:?} {token:?}");
        assert!(!shown.contains("hunter2") && shown.contains("7 bytes"), "{shown}");
    }
}
