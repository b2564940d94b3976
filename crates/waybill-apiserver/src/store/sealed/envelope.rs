//! How a value says that it is sealed: `waybill:enc:xaes256gcm:v1:KEY-ID:`, then what the cipher made.
//!
//! Objects are stored as JSON, which begins with a brace, so a plain value is never taken for a sealed
//! one.

use super::key_ring::KeyId;

/// Who sealed a value, and how. Another cipher will have another name here.
const PROVIDER: &str = "waybill:enc:xaes256gcm:v1:";

/// What every provider of ours begins with.
const ANY_PROVIDER: &[u8] = b"waybill:enc:";

/// A value as it lies in the store.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Envelope<'a> {
    /// As it was before there were keys, or a resource that is not sealed.
    Plain,
    Sealed {
        key: &'a str,
        content: &'a [u8],
    },
    /// Sealed in a way that a later version of ours may know.
    Foreign,
}

impl<'a> Envelope<'a> {
    /// What `value` says of itself.
    pub(super) fn of(value: &'a [u8]) -> Self {
        if !value.starts_with(ANY_PROVIDER) {
            return Self::Plain;
        }
        let sealed = || {
            let rest = value.strip_prefix(PROVIDER.as_bytes())?;
            let end = rest.iter().position(|byte| *byte == b':')?;
            let (key, content) = rest.split_at_checked(end)?;
            Some(Self::Sealed { key: str::from_utf8(key).ok()?, content: content.get(1..)? })
        };
        sealed().unwrap_or(Self::Foreign)
    }
}

/// What stands before the content of a value that is sealed under `key`.
pub(super) fn header(key: &KeyId) -> Vec<u8> {
    format!("{PROVIDER}{}:", key.as_str()).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_says_which_key_it_needs() {
        let key = KeyId::parse("2026-11-17-a1b2").unwrap();
        let mut value = header(&key);
        value.extend_from_slice(b"a:b");
        let sealed = Envelope::Sealed { key: "2026-11-17-a1b2", content: b"a:b" };
        assert!(Envelope::of(&value) == sealed);
        assert!(Envelope::of(b"{\"kind\":\"Secret\"}") == Envelope::Plain);
        assert!(Envelope::of(b"") == Envelope::Plain);
        assert!(Envelope::of(b"waybill:enc:later:v1:k:x") == Envelope::Foreign);
        assert!(Envelope::of(b"waybill:enc:xaes256gcm:v1:no end") == Envelope::Foreign);
    }
}
