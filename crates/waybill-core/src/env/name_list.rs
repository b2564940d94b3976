//! A list of names as one line of text, as annotations hold it.
//!
//! Names stand between commas. Whatever a name could have that a list must not is written as `%` and two
//! hexadecimal digits, for each byte; usual names look as they are.

use alloc::{string::String, vec::Vec};
use core::fmt::Write as _;

use super::name::EnvName;

/// The names as one line.
pub fn join<'a>(names: impl IntoIterator<Item = &'a EnvName>) -> String {
    let mut list = String::new();
    for (at, name) in names.into_iter().enumerate() {
        if at > 0 {
            list.push(',');
        }
        for byte in name.as_bytes() {
            if byte.is_ascii_graphic() && !b"%,".contains(byte) {
                list.push(char::from(*byte));
            } else {
                let _ = write!(list, "%{byte:02X}");
            }
        }
    }
    list
}

/// Whether `name` is in the list. Blanks around names are allowed, for people.
pub fn contains(list: &str, name: &EnvName) -> bool {
    list.split(',').any(|item| decode(item.trim().as_bytes()) == name.as_bytes())
}

/// What is no code stands for itself.
fn decode(item: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(item.len());
    let mut rest = item;
    while let [first, tail @ ..] = rest {
        rest = tail;
        if let (b'%', [high, low, after @ ..]) = (first, tail)
            && let (Some(high), Some(low)) = (digit(*high), digit(*low))
        {
            plain.push(high << 4 | low);
            rest = after;
        } else {
            plain.push(*first);
        }
    }
    plain
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::env::name::NameRules;

    fn name(raw: &str) -> EnvName {
        EnvName::parse(raw, NameRules::Relaxed).unwrap()
    }

    #[test]
    fn usual_names_look_as_they_are() {
        assert_eq!(join(&[name("TOKEN"), name("a.b-c_1")]), "TOKEN,a.b-c_1");
        assert_eq!(join(&[]), "");
        assert!(contains("TOKEN, KEY", &name("KEY")) && !contains("TOKEN, KEY", &name("KEYS")));
    }

    #[test]
    fn a_comma_belongs_to_its_name() {
        let list = join(&[name("a,b"), name("100%"), name(" c ")]);
        assert_eq!(list, "a%2Cb,100%25,%20c%20");
        for good in ["a,b", "100%", " c "] {
            assert!(contains(&list, &name(good)), "{good}");
        }
        for bad in ["a", "b", "c", "a%2Cb"] {
            assert!(!contains(&list, &name(bad)), "{bad}");
        }
    }

    proptest! {
        /// A list has the names that it was made of, and no others.
        #[test]
        fn a_list_has_its_names(
            raw in proptest::collection::btree_set("[ -<>-~]{1,8}", 0..6),
            other in "[ -<>-~]{1,8}",
        ) {
            let names: Vec<_> = raw.iter().map(|raw| name(raw)).collect();
            let list = join(&names);
            for name in &names {
                prop_assert!(contains(&list, name));
            }
            prop_assert_eq!(contains(&list, &name(&other)), raw.contains(&other));
        }
    }
}
