//! Hides the values of variables in request URIs.
//!
//! Exec requests carry `env=NAME=VALUE` in their query. Names are worth recording, values never
//! are. This reads a query as every parser might: escapes in the parameter's name, an escaped `=`,
//! upper case and broken escapes hide nothing. In doubt it masks too much.

use std::borrow::Cow;

/// What stands in place of a value, whatever its length.
const MASK: &str = "***";

/// `uri` with the value of every `env` parameter masked; for audit events and access logs.
///
/// Names and their escapes stay as they were sent. A parameter without a name is masked whole,
/// since what stands there may be the value.
pub(crate) fn mask_request_uri(uri: &str) -> Cow<'_, str> {
    let Some((path, query)) = uri.split_once('?') else {
        return Cow::Borrowed(uri);
    };
    if query.split('&').all(|pair| kept_length(pair).is_none()) {
        return Cow::Borrowed(uri);
    }
    let mut masked = String::with_capacity(uri.len());
    masked.push_str(path);
    for (position, pair) in query.split('&').enumerate() {
        masked.push(if position == 0 { '?' } else { '&' });
        match kept_length(pair).and_then(|kept| pair.get(..kept)) {
            Some(kept) => masked.extend([kept, MASK]),
            None => masked.push_str(pair),
        }
    }
    Cow::Owned(masked)
}

/// How many bytes of an `env` pair may be shown: up to and with the `=` after the variable's name,
/// or that after `env`. `None` if it is another parameter.
fn kept_length(pair: &str) -> Option<usize> {
    let mut symbols = Symbols { rest: pair.as_bytes(), at: 0 };
    for expected in *b"env" {
        let (found, _) = symbols.next()?;
        if !found.eq_ignore_ascii_case(&expected) {
            return None;
        }
    }
    let (equals, after_parameter) = symbols.next()?;
    if equals != b'=' {
        return None;
    }
    let name_end = symbols.find(|(symbol, _)| *symbol == b'=').map(|(_, end)| end);
    Some(name_end.unwrap_or(after_parameter))
}

/// The decoded bytes of a form-encoded text, each with the offset where its encoding ends. An
/// escape that is malformed stands for itself.
struct Symbols<'a> {
    rest: &'a [u8],
    at: usize,
}

impl Iterator for Symbols<'_> {
    type Item = (u8, usize);

    fn next(&mut self) -> Option<(u8, usize)> {
        let (symbol, rest) = match self.rest {
            [] => return None,
            [b'%', high, low, rest @ ..] if digit(*high).is_some() && digit(*low).is_some() => {
                ((digit(*high)? << 4) | digit(*low)?, rest)
            }
            [byte, rest @ ..] => (*byte, rest),
        };
        self.at += self.rest.len() - rest.len();
        self.rest = rest;
        Some((symbol, self.at))
    }
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CANARY: &str = "kanarie7";

    #[track_caller]
    fn check(uri: &str, expected: &str) {
        assert_eq!(mask_request_uri(uri), expected, "{uri:?}");
    }

    #[test]
    fn values_are_masked_and_names_stay() {
        check("/exec?env=A=secret", "/exec?env=A=***");
        check(
            "/exec?command=sh&env=A=s&env=B=t&tty=true",
            "/exec?command=sh&env=A=***&env=B=***&tty=true",
        );
        check("/exec?env=%C3%A9=s", "/exec?env=%C3%A9=***");
        check("/exec?env=A=", "/exec?env=A=***");
        check("/exec?env=A=b=c", "/exec?env=A=***");
    }

    #[test]
    fn encodings_hide_nothing() {
        check("/exec?env=A%3Dsecret", "/exec?env=A%3D***");
        check("/exec?%65n%76=A=secret", "/exec?%65n%76=A=***");
        check("/exec?env%3DA%3dsecret", "/exec?env%3DA%3d***");
        check("/exec?ENV=A=secret", "/exec?ENV=A=***");
        check("/exec?env=%zz=secret%", "/exec?env=%zz=***");
        check("/exec?env=A=b?c", "/exec?env=A=***");
    }

    #[test]
    fn a_value_without_a_name_is_masked_whole() {
        check("/exec?env=secret", "/exec?env=***");
        check("/exec?env=", "/exec?env=***");
        check("/exec?env==secret", "/exec?env==***");
    }

    #[test]
    fn other_uris_are_borrowed_as_they_are() {
        for uri in [
            "",
            "/",
            "?",
            "/a?b=env=c",
            "/a?environment=A=b",
            "/a?env",
            "/a?xenv=A=b",
            "/env=A=b",
            "/?en",
        ] {
            assert!(matches!(mask_request_uri(uri), Cow::Borrowed(same) if same == uri), "{uri:?}");
        }
    }

    /// `text` with the characters escaped that `which` selects.
    fn escape(text: &str, which: &[bool]) -> String {
        text.bytes()
            .zip(which.iter().cycle())
            .map(|(byte, escaped)| match *escaped || !byte.is_ascii_alphanumeric() {
                true => format!("%{byte:02x}"),
                false => char::from(byte).to_string(),
            })
            .collect()
    }

    fn decode(text: &str) -> Vec<u8> {
        Symbols { rest: text.as_bytes(), at: 0 }.map(|(symbol, _)| symbol).collect()
    }

    proptest! {
        #[test]
        fn no_encoding_of_a_value_comes_through(
            before in "[a-z=%&?]{0,12}",
            name in "[A-Z_é=.]{0,6}",
            padding in "[a-z&=+%é]{0,6}",
            escapes in proptest::collection::vec(any::<bool>(), 1..9),
        ) {
            let value = escape(&format!("{padding}{CANARY}{padding}"), &escapes);
            let (parameter, name) = (escape("env", &escapes), escape(&name, &[false]));
            let uri = format!("/exec?{before}&{parameter}={name}={value}&tty=true");
            let masked = mask_request_uri(&uri);
            let decoded = decode(&masked);
            let found = decoded.windows(CANARY.len()).any(|part| part == CANARY.as_bytes());
            prop_assert!(!found, "{masked}");
            prop_assert!(masked.ends_with("***&tty=true"), "{masked}");
        }

        #[test]
        fn masking_twice_is_masking_once(uri in any::<String>()) {
            let once = mask_request_uri(&uri).into_owned();
            prop_assert_eq!(mask_request_uri(&once), once.as_str());
        }

        #[test]
        fn masking_twice_is_masking_once_for_queries(uri in "/[?&=%env3Dd*]{0,30}") {
            let once = mask_request_uri(&uri).into_owned();
            prop_assert_eq!(mask_request_uri(&once), once.as_str());
        }
    }
}
