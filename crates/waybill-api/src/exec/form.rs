//! The encoding of HTML forms, which queries use: `name=value` between `&`, percent-escapes, and `+`
//! for a space.
//!
//! Reading is strict where Go's parser drops a malformed pair in silence: a variable that vanishes is
//! worse than a request that fails.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

/// The values of `parameter` in order, decoded; `None` for one whose escapes are malformed.
///
/// A name that cannot be decoded is not the one wanted.
pub(super) fn values(query: &str, parameter: &str) -> impl Iterator<Item = Option<Vec<u8>>> {
    query
        .split('&')
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .filter(move |(name, _)| decode(name).is_some_and(|name| name == parameter.as_bytes()))
        .map(|(_, value)| decode(value))
}

/// Builds a query.
#[derive(Default)]
pub(super) struct FormWriter(String);

impl FormWriter {
    /// Appends `parameter=value`.
    pub(super) fn push(&mut self, parameter: &str, value: &[u8]) {
        if !self.0.is_empty() {
            self.0.push('&');
        }
        self.0.push_str(parameter);
        self.0.push('=');
        self.0.extend(percent_encode(value, RESERVED));
    }

    /// Appends `parameter=key=value`. Every reader takes the first `=` for the end of the parameter,
    /// so the second needs no escape.
    pub(super) fn push_pair(&mut self, parameter: &str, key: &[u8], value: &[u8]) {
        self.push(parameter, key);
        self.0.push('=');
        self.0.extend(percent_encode(value, RESERVED));
    }

    /// The query.
    pub(super) fn finish(self) -> String {
        self.0
    }
}

/// All but the unreserved characters of RFC 3986, so that no reader splits or decodes differently.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Decodes a form-encoded text; `None` if an escape is malformed.
fn decode(encoded: &str) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(encoded.len());
    let mut bytes = encoded.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'+' => b' ',
            b'%' => (hex_digit(bytes.next()?)? << 4) | hex_digit(bytes.next()?)?,
            _ => byte,
        });
    }
    Some(decoded)
}

fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(query: &str, expected: &[Option<&[u8]>]) {
        let found: Vec<_> = values(query, "env").collect();
        let found: Vec<_> = found.iter().map(Option::as_deref).collect();
        assert_eq!(found, expected, "{query:?}");
    }

    #[test]
    fn values_are_found_by_their_decoded_name() {
        check("env=1&other=2&env=3", &[Some(b"1"), Some(b"3")]);
        check("%65n%76=1&ENV=2&env%20=3&+env=4&env%=5", &[Some(b"1")]);
        check("env", &[Some(b"")]);
        check("env&&=&env==", &[Some(b""), Some(b"=")]);
        check("", &[]);
    }

    #[test]
    fn values_are_decoded_once() {
        check("env=a+b%20c%2B", &[Some(b"a b c+")]);
        check("env=%2541", &[Some(b"%41")]);
        check("env=%00%fF\u{e9};", &[Some(b"\0\xff\xc3\xa9;")]);
    }

    #[test]
    fn malformed_escapes_are_reported() {
        for bad in ["%", "%4", "%zz", "%4g", "%+1", "%\u{e9}", "ok%"] {
            check(&format!("env={bad}&env=1"), &[None, Some(b"1")]);
        }
    }

    #[test]
    fn every_byte_survives() {
        let bytes: Vec<u8> = (0..=u8::MAX).collect();
        let mut writer = FormWriter::default();
        writer.push("env", &bytes);
        writer.push_pair("env", b"k", &bytes);
        let query = writer.finish();
        assert!(
            query.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"%&=-._~".contains(&byte))
        );
        check(&query, &[Some(&bytes), Some(&[b"k=", &*bytes].concat())]);
    }
}
