//! The words of an exec command after gate has stamped it, and their framing.
//!
//! `["waybill-exec:<token>", "<sealed word>" or "-", original…]`: a wrapper that is not there makes the
//! command fail, since no program has such a name.

/// How the first word of a stamped command begins. Gate refuses commands of clients that begin so.
pub const EXEC_PREFIX: &str = "waybill-exec:";

/// The second word when the client sealed no variables.
pub const NOT_SEALED: &str = "-";

/// A stamped command, taken apart. Nothing of it is verified yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecWords<'a> {
    /// The token, without its prefix.
    pub token: &'a str,
    /// The word that holds the client's variables.
    pub sealed: Option<&'a str>,
    /// What the client wants to run; never empty.
    pub command: &'a [String],
    /// Everything after the token, which the token's hash is of.
    pub bound: &'a [String],
}

impl<'a> ExecWords<'a> {
    /// Takes `args` apart if they are stamped; `None` means that no gate has seen them.
    pub fn parse(args: &'a [String]) -> Result<Option<Self>, WordsError> {
        let Some(token) = args.first().and_then(|word| word.strip_prefix(EXEC_PREFIX)) else {
            return Ok(None);
        };
        match args {
            [_, bound @ ..]
                if let [sealed, command @ ..] = bound
                    && !command.is_empty() =>
            {
                let sealed = (sealed != NOT_SEALED).then_some(sealed.as_str());
                Ok(Some(Self { token, sealed, command, bound }))
            }
            _ => Err(WordsError),
        }
    }

    /// The bytes whose SHA-256 the token holds.
    pub fn bound_bytes(&self) -> Vec<u8> {
        framed(self.bound.iter().map(String::as_bytes))
    }
}

/// A stamped command has too few words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a stamped command has no words to run")]
pub struct WordsError;

/// What comes after the token in a stamped command, and then the token can be made over [`framed`] of it.
pub fn stamped(sealed: Option<&str>, command: &[String]) -> Vec<String> {
    let second = sealed.unwrap_or(NOT_SEALED).to_owned();
    std::iter::once(second).chain(command.iter().cloned()).collect()
}

/// Each word as its length, a `u64` in little endian, and its bytes: no two lists have the same bytes.
pub fn framed<'a>(words: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in words {
        bytes.extend_from_slice(&u64::try_from(word.len()).unwrap_or(u64::MAX).to_le_bytes());
        bytes.extend_from_slice(word);
    }
    bytes
}

/// The words that [`framed`] was given.
pub fn unframed(mut bytes: &[u8]) -> Result<Vec<&[u8]>, FrameError> {
    let mut words = Vec::new();
    while !bytes.is_empty() {
        let (length, rest) = bytes.split_first_chunk().ok_or(FrameError)?;
        let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| FrameError)?;
        let (word, rest) = rest.split_at_checked(length).ok_or(FrameError)?;
        words.push(word);
        bytes = rest;
    }
    Ok(words)
}

/// Bytes that [`framed`] cannot have made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a length does not fit what follows it")]
pub struct FrameError;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(list: &[&str]) -> Vec<String> {
        list.iter().map(|&word| word.to_owned()).collect()
    }

    #[test]
    fn a_stamped_command_is_taken_apart() {
        let args = words(&["waybill-exec:t.o.k", "-", "sh", "-c", ""]);
        let parsed = ExecWords::parse(&args).unwrap().unwrap();
        assert_eq!((parsed.token, parsed.sealed), ("t.o.k", None));
        assert_eq!(parsed.command, words(&["sh", "-c", ""]));
        assert_eq!(parsed.bound, stamped(None, parsed.command));
        let args = words(&["waybill-exec:t", "waybill-sealed:x", "true"]);
        let parsed = ExecWords::parse(&args).unwrap().unwrap();
        assert_eq!(parsed.sealed, Some("waybill-sealed:x"));
    }

    #[test]
    fn a_command_without_the_prefix_in_front_is_not_stamped() {
        for args in
            [&[][..], &["sh", "waybill-exec:t"], &["Waybill-exec:t", "-", "sh"], &["waybill-exec"]]
        {
            assert_eq!(ExecWords::parse(&words(args)), Ok(None), "{args:?}");
        }
    }

    #[test]
    fn a_stamped_command_without_a_program_is_refused() {
        for args in [&["waybill-exec:t"][..], &["waybill-exec:", "-"], &["waybill-exec:t", "sh"]] {
            assert_eq!(ExecWords::parse(&words(args)), Err(WordsError), "{args:?}");
        }
    }

    /// These bytes are what both sides hash: a change is a change of the protocol.
    #[test]
    fn frames_have_these_bytes() {
        assert_eq!(framed([]), b"");
        let expected = b"\x01\0\0\0\0\0\0\0-\x02\0\0\0\0\0\0\0sh\0\0\0\0\0\0\0\0";
        assert_eq!(framed([&b"-"[..], b"sh", b""]), expected);
    }

    #[test]
    fn a_length_that_does_not_fit_is_refused() {
        let hostile: [&[u8]; 4] = [b"\x01", b"\x01\0\0\0\0\0\0\0", &[0xff; 8], &[0xff; 24]];
        for bytes in hostile {
            assert_eq!(unframed(bytes), Err(FrameError), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn framing_loses_nothing(list: Vec<Vec<u8>>) {
            let bytes = framed(list.iter().map(Vec::as_slice));
            let back = unframed(&bytes).unwrap();
            prop_assert_eq!(back, list.iter().map(Vec::as_slice).collect::<Vec<_>>());
        }

        #[test]
        fn every_frame_has_one_reading(bytes: Vec<u8>) {
            if let Ok(list) = unframed(&bytes) {
                prop_assert_eq!(framed(list), bytes);
            }
        }

        #[test]
        fn stamping_is_undone_by_parsing(sealed in proptest::option::of("waybill-sealed:[a-z]{0,9}"), list in proptest::collection::vec(".*", 1..5)) {
            let mut args = vec![format!("{EXEC_PREFIX}t")];
            args.extend(stamped(sealed.as_deref(), &list));
            let parsed = ExecWords::parse(&args).unwrap().unwrap();
            prop_assert_eq!(parsed.sealed, sealed.as_deref());
            prop_assert_eq!(parsed.command, &list[..]);
        }
    }
}
