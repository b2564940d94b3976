//! SHA-256 digests, by which everything in the store is called.

use std::{
    fmt,
    io::{self, Read, Write},
    str::FromStr,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest as _, Sha256};

/// The SHA-256 of some bytes, written `sha256:` and 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The hex digits alone, as file names have them.
    pub fn hex(&self) -> String {
        self.0.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(hex_digit).collect()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let (algorithm, hex) = text.split_once(':').ok_or(DigestError::Form)?;
        if algorithm != "sha256" {
            return Err(DigestError::Algorithm);
        }
        let mut bytes = [0; 32];
        let (pairs, rest) = hex.as_bytes().as_chunks::<2>();
        if pairs.len() != bytes.len() || !rest.is_empty() {
            return Err(DigestError::Length);
        }
        for (byte, &[high, low]) in bytes.iter_mut().zip(pairs) {
            *byte = nibble(high)? << 4 | nibble(low)?;
        }
        Ok(Self(bytes))
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// Why some text is not a digest that we can check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DigestError {
    /// No colon.
    #[error("a digest looks like sha256:<64 hex digits>")]
    Form,
    /// SHA-512 and others, which nobody uses for images.
    #[error("only sha256 digests are supported")]
    Algorithm,
    /// Too few or too many digits.
    #[error("a sha256 digest has 64 hex digits")]
    Length,
    /// Something else than `0-9a-f`.
    #[error("a digest has lower-case hex digits only")]
    Digit,
}

const PREFIX: &str = "sha256:";

fn hex_digit(nibble: u8) -> char {
    char::from_digit(u32::from(nibble), 16).unwrap_or('?')
}

fn nibble(digit: u8) -> Result<u8, DigestError> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        _ => Err(DigestError::Digit),
    }
}

/// Counts and hashes what passes through, in either direction.
pub(super) struct Hashing<T> {
    inner: T,
    hash: Sha256,
    count: u64,
}

impl<T> Hashing<T> {
    pub(super) fn new(inner: T) -> Self {
        Self { inner, hash: Sha256::new(), count: 0 }
    }

    /// What passed: its digest and its length.
    pub(super) fn finish(self) -> (T, Digest, u64) {
        (self.inner, Digest(self.hash.finalize().into()), self.count)
    }

    fn pass(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.count = self.count.saturating_add(bytes.len() as u64);
    }
}

impl<T: Read> Read for Hashing<T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.pass(buffer.get(..count).unwrap_or_default());
        Ok(count)
    }
}

impl<T: Write> Write for Hashing<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.pass(bytes.get(..count).unwrap_or_default());
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn a_digest_reads_as_it_is_written() {
        assert_eq!(Digest::of(b"").to_string(), EMPTY);
        assert_eq!(EMPTY.parse(), Ok(Digest::of(b"")));
    }

    #[test]
    fn what_is_not_a_lower_case_sha256_is_refused() {
        let check = |text: &str, error| assert_eq!(text.parse::<Digest>(), Err(error), "{text}");
        check("e3b0", DigestError::Form);
        check("sha512:e3b0", DigestError::Algorithm);
        check("sha256:e3b0", DigestError::Length);
        check(&format!("{EMPTY}0"), DigestError::Length);
        check(&EMPTY.to_uppercase().replace("SHA", "sha"), DigestError::Digit);
        check(&EMPTY.replace("e3b", "../"), DigestError::Digit);
    }

    #[test]
    fn reading_and_writing_hash_alike() {
        let mut reader = Hashing::new(&b"abc"[..]);
        io::copy(&mut reader, &mut io::sink()).unwrap();
        let mut writer = Hashing::new(Vec::new());
        writer.write_all(b"abc").unwrap();
        let (written, digest, count) = writer.finish();
        assert_eq!((digest, count), (Digest::of(b"abc"), 3));
        assert_eq!(reader.finish().1, digest);
        assert_eq!(written, b"abc");
    }
}
