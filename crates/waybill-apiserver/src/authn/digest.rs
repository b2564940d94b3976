//! SHA-256, taken from the TLS library so that no second implementation is linked.

use std::fmt::Write;

use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;

/// A SHA-256 hash: what is kept of a token in place of the token, and what a session token binds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Digest([u8; 32]);

impl Digest {
    /// Hashes `bytes`.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let suite = TLS13_AES_128_GCM_SHA256.tls13().expect("the suite is one of TLS 1.3");
        let output = suite.common.hash_provider.hash(bytes);
        Self(output.as_ref().try_into().expect("SHA-256 has 32 bytes"))
    }

    /// The 32 bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// In lower-case hexadecimal.
    pub(super) fn hex(&self) -> String {
        self.0.iter().fold(String::with_capacity(64), |mut text, byte| {
            write!(text, "{byte:02x}").expect("writing to a string cannot fail");
            text
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_as_fips_180_says() {
        assert_eq!(
            Digest::of(b"abc").hex(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
