//! The keys of what is sealed: the first is for writing, all are for reading.
//!
//! As text that is a line for each key: its id, a blank, and 32 bytes in base64. Lines that begin with
//! `#` and empty lines mean nothing.

use std::fmt;

use aws_lc_rs::{error::Unspecified, rand};
use base64::{Engine, prelude::BASE64_STANDARD};
use jiff::{Timestamp, tz::TimeZone};
use waybill_core::secret::SecretBytes;
use zeroize::Zeroizing;

use super::{
    envelope::{self, Envelope},
    xaes::{Cipher, KEY_BYTES},
};

/// What stands at the top of a key file of ours.
const TITLE: &str = "\
# The keys of what is encrypted in the store: the first is for writing, all are for reading.
# Without them it cannot be read again: keep a copy, elsewhere than copies of the store.
";

/// Longer ids tell nobody more.
const LONGEST_ID: usize = 63;

/// Keys, in the order of their file. Without any nothing is sealed, and nothing that is can be read.
#[derive(Default)]
pub(crate) struct KeyRing(Vec<Key>);

struct Key {
    id: KeyId,
    cipher: Cipher,
}

/// The name of a key, which stands before every value that it sealed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct KeyId(Box<str>);

/// Why a text is no key ring. None of this shows a key.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KeyRingError {
    #[error("it is not text")]
    NotText,
    #[error("line {line}: expected `ID KEY`, with a blank between them")]
    NoPair { line: usize },
    #[error(
        "line {line}: an id has 1 to {LONGEST_ID} lower-case letters, digits and dashes, as in 2026-11-17-a1b2"
    )]
    Id { line: usize },
    #[error(
        "line {line}: a key is {KEY_BYTES} bytes in base64; `openssl rand -base64 {KEY_BYTES}` makes one"
    )]
    Key { line: usize },
    #[error("line {line}: the id {id} is there twice")]
    Twice { line: usize, id: KeyId },
    #[error("there is no key in it")]
    Empty,
    #[error("the cryptographic library refused a key")]
    Refused,
}

/// Why a value does not open.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OpenError {
    #[error("it is encrypted under the key {0}, which is not there")]
    NoSuchKey(String),
    #[error(
        "it does not open with the key {0}: that is not the key that it was written with, or the value was changed or moved in the store"
    )]
    Refused(KeyId),
    #[error("it is encrypted in a way that this version does not know")]
    Foreign,
}

impl KeyRing {
    /// Reads the content of a key file.
    pub(crate) fn parse(text: &SecretBytes) -> Result<Self, KeyRingError> {
        let text = str::from_utf8(text.expose()).map_err(|_| KeyRingError::NotText)?;
        let mut keys: Vec<Key> = Vec::new();
        for (at, content) in text.lines().enumerate() {
            let (line, content) = (at + 1, content.trim());
            if content.is_empty() || content.starts_with('#') {
                continue;
            }
            let (id, key) = content.split_once(' ').ok_or(KeyRingError::NoPair { line })?;
            let id = KeyId::parse(id).ok_or(KeyRingError::Id { line })?;
            if keys.iter().any(|known| known.id == id) {
                return Err(KeyRingError::Twice { line, id });
            }
            let key = BASE64_STANDARD.decode(key.trim()).map(Zeroizing::new);
            let key = key.map_err(|_| KeyRingError::Key { line })?;
            let key = key.as_slice().try_into().map_err(|_| KeyRingError::Key { line })?;
            let cipher = Cipher::new(key).map_err(|Unspecified| KeyRingError::Refused)?;
            keys.push(Key { id, cipher });
        }
        if keys.is_empty() { Err(KeyRingError::Empty) } else { Ok(Self(keys)) }
    }

    /// The ids of all keys; the first is for writing.
    pub(crate) fn ids(&self) -> impl Iterator<Item = &KeyId> {
        self.0.iter().map(|key| &key.id)
    }

    /// Whether there is a key of this id.
    pub(super) fn has(&self, id: &str) -> bool {
        self.ids().any(|known| known.as_str() == id)
    }

    /// The id of the key for writing.
    pub(super) fn newest(&self) -> Option<&KeyId> {
        self.ids().next()
    }

    /// The value at `place` as it goes into the store; `None` without a key.
    pub(super) fn seal(&self, place: &str, value: &[u8]) -> Option<Result<Vec<u8>, Unspecified>> {
        let Key { id, cipher } = self.0.first()?;
        let mut sealed = envelope::header(id);
        Some(cipher.seal(value, place.as_bytes(), &mut sealed).map(|()| sealed))
    }

    /// What was sealed for `place`; `None` if `value` is plain.
    pub(super) fn open(&self, place: &str, value: &[u8]) -> Result<Option<Vec<u8>>, OpenError> {
        let (id, content) = match Envelope::of(value) {
            Envelope::Plain => return Ok(None),
            Envelope::Foreign => return Err(OpenError::Foreign),
            Envelope::Sealed { key, content } => (key, content),
        };
        let key = self.0.iter().find(|known| known.id.as_str() == id);
        let Key { id, cipher } = key.ok_or_else(|| OpenError::NoSuchKey(id.to_owned()))?;
        let opened = cipher.open(content, place.as_bytes());
        opened.map(Some).map_err(|Unspecified| OpenError::Refused(id.clone()))
    }
}

/// `before` with a new key at its top, for writing, and the id of that key.
pub(super) fn with_new_key(
    before: Option<&SecretBytes>,
    now: Timestamp,
) -> Result<(SecretBytes, KeyId), KeyRingError> {
    let mut random = [0; 4];
    let mut key = Zeroizing::new([0; KEY_BYTES]);
    let filled = rand::fill(&mut random).and_then(|()| rand::fill(key.as_mut_slice()));
    filled.map_err(|Unspecified| KeyRingError::Refused)?;
    let day = now.to_zoned(TimeZone::UTC).date();
    let id = KeyId(format!("{day}-{:08x}", u32::from_be_bytes(random)).into());
    let key = Zeroizing::new(BASE64_STANDARD.encode(key.as_slice()));
    let before = before.map_or(&b""[..], SecretBytes::expose);
    let before = before.strip_prefix(TITLE.as_bytes()).unwrap_or(before);
    // As large as it gets, so that no piece of it stays behind where it grew.
    let mut text = Vec::with_capacity(TITLE.len() + before.len() + LONGEST_ID + key.len() + 2);
    for part in [TITLE, id.as_str(), " ", &key, "\n"] {
        text.extend_from_slice(part.as_bytes());
    }
    text.extend_from_slice(before);
    Ok((SecretBytes::from(text), id))
}

/// `text` without the keys that `keep` does not want.
pub(super) fn retain(text: &SecretBytes, keep: impl Fn(&str) -> bool) -> SecretBytes {
    let mut kept = Vec::with_capacity(text.len());
    for line in text.expose().split_inclusive(|byte| *byte == b'\n') {
        let content = line.trim_ascii();
        let id = content.split(|byte| *byte == b' ').next().unwrap_or_default();
        let is_key = !content.is_empty() && !content.starts_with(b"#");
        if !is_key || str::from_utf8(id).is_ok_and(&keep) {
            kept.extend_from_slice(line);
        }
    }
    SecretBytes::from(kept)
}

impl KeyId {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let fits = (1..=LONGEST_ID).contains(&text.len()) && text.bytes().all(allowed);
        fits.then(|| Self(text.into()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";

    fn parse(text: &str) -> Result<KeyRing, KeyRingError> {
        KeyRing::parse(&SecretBytes::copy_of(text.as_bytes()))
    }

    fn ids(ring: &KeyRing) -> Vec<&str> {
        ring.ids().map(KeyId::as_str).collect()
    }

    #[test]
    fn the_first_key_writes_and_all_read() {
        let ring = parse(&format!("# of today\n\nb {KEY}\n  a {KEY}  \n")).unwrap();
        assert_eq!(ids(&ring), ["b", "a"]);
        let old = parse(&format!("a {KEY}")).unwrap();
        let sealed = old.seal("/x", b"hunter2").unwrap().unwrap();
        assert_eq!(ring.open("/x", &sealed).unwrap().unwrap(), b"hunter2");
        let sealed = ring.seal("/x", b"hunter2").unwrap().unwrap();
        assert_eq!(old.open("/x", &sealed), Err(OpenError::NoSuchKey("b".into())));
        assert_eq!(ring.open("/x", b"{}").unwrap(), None);
        assert!(KeyRing::default().seal("/x", b"hunter2").is_none());
    }

    #[test]
    fn a_value_at_another_place_does_not_open() {
        let ring = parse(&format!("a {KEY}")).unwrap();
        let sealed = ring.seal("/ns/a", b"hunter2").unwrap().unwrap();
        let refused = ring.open("/ns/b", &sealed).unwrap_err();
        assert_eq!(refused, OpenError::Refused(KeyId::parse("a").unwrap()));
        let other = parse("a AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=").unwrap();
        assert_eq!(other.open("/ns/a", &sealed).unwrap_err(), refused);
    }

    #[test]
    fn a_new_key_goes_to_the_top_and_old_ones_can_go() {
        let now: Timestamp = "2026-11-17T10:00:00Z".parse().unwrap();
        let (first, old) = with_new_key(None, now).unwrap();
        let (both, new) = with_new_key(Some(&first), now).unwrap();
        assert!(new.as_str().starts_with("2026-11-17-") && new != old);
        assert_eq!(ids(&KeyRing::parse(&both).unwrap()), [new.as_str(), old.as_str()]);
        let left = retain(&both, |id| id == new.as_str());
        assert_eq!(ids(&KeyRing::parse(&left).unwrap()), [new.as_str()]);
        let title = |text: &SecretBytes| {
            String::from_utf8_lossy(text.expose()).matches("# The keys of").count()
        };
        assert_eq!((title(&both), title(&left)), (1, 1));
    }

    #[test]
    fn what_is_wrong_is_told_by_its_line_without_the_key() {
        let fault = |text: &str| parse(text).err().unwrap();
        assert_eq!(fault("#\nabc"), KeyRingError::NoPair { line: 2 });
        assert_eq!(fault(&format!("A {KEY}")), KeyRingError::Id { line: 1 });
        assert_eq!(fault(&format!("a:b {KEY}")), KeyRingError::Id { line: 1 });
        assert_eq!(fault("a aHVudGVyMg=="), KeyRingError::Key { line: 1 });
        assert_eq!(fault("a hunter2"), KeyRingError::Key { line: 1 });
        assert_eq!(fault("# nothing"), KeyRingError::Empty);
        let twice = fault(&format!("a {KEY}\na {KEY}"));
        assert_eq!(twice.to_string(), "line 2: the id a is there twice");
        assert!(!fault("a hunter2").to_string().contains("hunter2"));
    }
}
