//! XAES-256-GCM: AES-256-GCM whose nonces are long enough to be drawn at random.
//!
//! The nonces of AES-GCM have 96 bits. Drawn at random they may repeat after some 2^32 values, and a
//! nonce that repeats gives away what the tags are made with; so upstream has keys of its `aesgcm`
//! replaced after 200,000 writes. Here a nonce has 192 bits: its first half makes a key for this value
//! alone out of the lasting one, by CMAC as NIST SP 800-108 says, and its second half is the nonce under
//! that. A key is good for 2^80 values. The scheme is <https://c2sp.org/XAES-256-GCM>, not ours.

use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey},
    cmac,
    error::Unspecified,
    rand,
};
use zeroize::Zeroizing;

/// The length of a key.
pub(super) const KEY_BYTES: usize = 32;

/// What a sealed value has more than the plain one: a nonce in front, a tag behind.
pub(super) const OVERHEAD: usize = NONCE_BYTES + TAG_BYTES;

const NONCE_BYTES: usize = 24;
const HALF: usize = NONCE_BYTES / 2;
const TAG_BYTES: usize = 16;

/// What the derivation of SP 800-108 begins its two blocks with: a counter, the label `X`, and a zero.
const BLOCKS: [[u8; 4]; 2] = [[0, 1, b'X', 0], [0, 2, b'X', 0]];

/// A key that seals and opens.
pub(super) struct Cipher(cmac::Key);

impl Cipher {
    pub(super) fn new(key: &[u8; KEY_BYTES]) -> Result<Self, Unspecified> {
        cmac::Key::new(cmac::AES_256, key).map(Self)
    }

    /// Appends a nonce and `plain`, sealed together with `bound_to`, to `out`.
    pub(super) fn seal(
        &self,
        plain: &[u8],
        bound_to: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Unspecified> {
        let mut nonce = [0; NONCE_BYTES];
        rand::fill(&mut nonce)?;
        self.seal_with(nonce, plain, bound_to, out)
    }

    /// What was sealed together with `bound_to`.
    pub(super) fn open(&self, sealed: &[u8], bound_to: &[u8]) -> Result<Vec<u8>, Unspecified> {
        let (nonce, text) = sealed.split_first_chunk::<NONCE_BYTES>().ok_or(Unspecified)?;
        let (key, nonce) = self.derive(*nonce)?;
        let mut plain = text.to_vec();
        let length = key.open_in_place(nonce, Aad::from(bound_to), &mut plain)?.len();
        plain.truncate(length);
        Ok(plain)
    }

    fn seal_with(
        &self,
        nonce: [u8; NONCE_BYTES],
        plain: &[u8],
        bound_to: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Unspecified> {
        out.reserve_exact(plain.len() + OVERHEAD);
        out.extend_from_slice(&nonce);
        let start = out.len();
        out.extend_from_slice(plain);
        let (key, nonce) = self.derive(nonce)?;
        let text = out.get_mut(start..).ok_or(Unspecified)?;
        let tag = key.seal_in_place_separate_tag(nonce, Aad::from(bound_to), text)?;
        out.extend_from_slice(tag.as_ref());
        Ok(())
    }

    /// The key and the nonce of one value.
    fn derive(&self, nonce: [u8; NONCE_BYTES]) -> Result<(LessSafeKey, Nonce), Unspecified> {
        let (salt, rest) = nonce.split_at(HALF);
        let mut derived = Zeroizing::new([0; KEY_BYTES]);
        for (half, block) in derived.chunks_exact_mut(TAG_BYTES).zip(BLOCKS) {
            let mut input = [0; 16];
            let (label, context) = input.split_at_mut(block.len());
            label.copy_from_slice(&block);
            context.copy_from_slice(salt);
            half.copy_from_slice(cmac::sign(&self.0, &input)?.as_ref());
        }
        let key = UnboundKey::new(&AES_256_GCM, derived.as_slice())?;
        Ok((LessSafeKey::new(key), Nonce::try_assume_unique_for_key(rest)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONCE: &[u8; NONCE_BYTES] = b"ABCDEFGHIJKLMNOPQRSTUVWX";

    #[track_caller]
    fn check(key: u8, bound_to: &str, sealed: &str) {
        let cipher = Cipher::new(&[key; KEY_BYTES]).unwrap();
        let mut out = Vec::new();
        cipher.seal_with(*NONCE, b"XAES-256-GCM", bound_to.as_bytes(), &mut out).unwrap();
        let hex: String = out[NONCE_BYTES..].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, sealed);
        assert_eq!(cipher.open(&out, bound_to.as_bytes()).unwrap(), b"XAES-256-GCM");
    }

    /// Both vectors of the specification.
    #[test]
    fn seals_as_the_specification_says() {
        check(1, "", "ce546ef63c9cc60765923609b33a9a1974e96e52daf2fcf7075e2271");
        check(
            3,
            "c2sp.org/XAES-256-GCM",
            "986ec1832593df5443a179437fd083bf3fdb41abd740a21f71eb769d",
        );
    }

    #[test]
    fn what_was_changed_moved_or_cut_does_not_open() {
        let cipher = Cipher::new(&[7; KEY_BYTES]).unwrap();
        let mut sealed = Vec::new();
        cipher.seal(b"hunter2", b"/a", &mut sealed).unwrap();
        assert_eq!(sealed.len(), b"hunter2".len() + OVERHEAD);
        assert!(cipher.open(&sealed, b"/b").is_err());
        assert!(Cipher::new(&[8; KEY_BYTES]).unwrap().open(&sealed, b"/a").is_err());
        for at in 0..sealed.len() {
            assert!(cipher.open(&sealed[..at], b"/a").is_err(), "{at}");
            sealed[at] ^= 1;
            assert!(cipher.open(&sealed, b"/a").is_err(), "{at}");
            sealed[at] ^= 1;
        }
        assert_eq!(cipher.open(&sealed, b"/a").unwrap(), b"hunter2");
    }

    #[test]
    fn the_same_value_never_looks_the_same() {
        let cipher = Cipher::new(&[7; KEY_BYTES]).unwrap();
        let seal = || {
            let mut out = Vec::new();
            cipher.seal(b"hunter2", b"/a", &mut out).unwrap();
            out
        };
        assert_ne!(seal(), seal());
    }
}
