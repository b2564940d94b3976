//! Patterns of administrators and keys of tenants.

#![no_main]

use libfuzzer_sys::fuzz_target;
use waybill_core::{glob::Glob, provider::AllowedFields};

fuzz_target!(|input: (&str, &str)| {
    let (pattern, key) = input;
    if let Ok(glob) = Glob::parse(pattern) {
        let wild = pattern.contains(['*', '?']);
        assert!(wild || glob.matches(key) == (pattern == key));
        assert!(!glob.matches(key) || Glob::parse("**").is_ok_and(|all| all.matches(key)));
        if key.len() < 256 && pattern.len() < 256 {
            assert_eq!(glob.matches(key), reference(pattern.as_bytes(), key.as_bytes(), pattern));
        }
    }
    if let Ok(fields) = AllowedFields::parse(Some(pattern))
        && fields.allows(key)
    {
        assert!(!key.split('/').any(|segment| segment == "." || segment == ".."));
        assert!(fields.check(key).is_ok());
    }
});

/// The obvious matcher, with a table of what was tried so that it ends; for ASCII only.
fn reference(pattern: &[u8], key: &[u8], text: &str) -> bool {
    if !text.is_ascii() || !key.is_ascii() {
        return Glob::parse(text)
            .is_ok_and(|glob| glob.matches(std::str::from_utf8(key).expect("it came as text")));
    }
    let mut known = vec![vec![None; key.len() + 1]; pattern.len() + 1];
    matches(pattern, key, &mut known)
}

fn matches(pattern: &[u8], key: &[u8], known: &mut [Vec<Option<bool>>]) -> bool {
    if let Some(answer) = known[pattern.len()][key.len()] {
        return answer;
    }
    let answer = match (pattern, key) {
        ([], _) => key.is_empty(),
        ([b'*', b'*', rest @ ..], _) => {
            matches(rest, key, known) || !key.is_empty() && matches(pattern, &key[1..], known)
        }
        ([b'*', rest @ ..], _) => {
            matches(rest, key, known)
                || key.first().is_some_and(|&byte| byte != b'/')
                    && matches(pattern, &key[1..], known)
        }
        ([b'?', rest @ ..], [byte, after @ ..]) => *byte != b'/' && matches(rest, after, known),
        ([wanted, rest @ ..], [byte, after @ ..]) => wanted == byte && matches(rest, after, known),
        (_, []) => false,
    };
    known[pattern.len()][key.len()] = Some(answer);
    answer
}
