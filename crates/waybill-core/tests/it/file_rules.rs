//! Rules of env files that go beyond single vectors: where upstream's parser deviates from its own
//! document (OP-25), what errors say, and laws over arbitrary bytes.

use proptest::{collection::vec, prelude::*};
use waybill_core::env::{
    file::{EnvFile, EnvFileFault},
    name::NameRules,
};

#[track_caller]
fn value_of<'a>(text: &'a str, key: &str) -> Option<&'a [u8]> {
    EnvFile::parse(text.as_bytes(), NameRules::Relaxed).expect("a good file").get(key)
}

#[track_caller]
fn fault_of(text: &str) -> EnvFileFault {
    EnvFile::parse(text.as_bytes(), NameRules::Relaxed).err().expect("a bad file").fault()
}

/// OP-25 (1): upstream takes the first of two definitions. FILE-34
#[test]
fn the_last_of_two_definitions_wins_file_34() {
    assert_eq!(value_of("A='1'\nA='2'\n", "A"), Some(&b"2"[..]));
}

/// OP-25 (2): upstream stops reading at the wanted key. FILE-17
#[test]
fn a_fault_after_the_wanted_key_is_found_file_17() {
    assert_eq!(fault_of("A='1'\nB=broken\n"), EnvFileFault::Unquoted);
}

/// OP-25 (3): upstream takes `#x` for a comment; bash yields `a#x`. FILE-30
#[test]
fn a_number_sign_at_the_quote_is_refused_file_30() {
    assert_eq!(fault_of("V='a'#x\n"), EnvFileFault::CommentNeedsSpace);
}

/// OP-25 (4): upstream yields an empty value; bash runs the value as a command. FILE-31
#[test]
fn a_space_after_the_equals_sign_is_refused_file_31() {
    assert_eq!(fault_of("V= 'a'\n"), EnvFileFault::SpaceAfterEquals);
}

/// OP-25 (5): upstream drops the CR of a CRLF inside a value. FILE-27
#[test]
fn a_carriage_return_inside_a_value_is_kept_file_27() {
    assert_eq!(value_of("V='a\r\nb'\n", "V"), Some(&b"a\r\nb"[..]));
}

/// OP-25 (6): upstream takes an empty value for a missing key. FILE-33
#[test]
fn an_empty_value_is_defined_file_33() {
    assert_eq!(value_of("V=''\n", "V"), Some(&b""[..]));
    assert_eq!(value_of("V=''\n", "W"), None);
}

/// OP-25 (7): upstream fails on an optional file that is missing. Here a missing key is an answer
/// and not an error, and an empty file is a good file, so the caller can tell "not there" (which
/// `optional` forgives, FILE-16) from "broken" (which it does not, FILE-17).
#[test]
fn a_missing_key_is_an_answer_and_not_an_error_file_16() {
    assert_eq!(value_of("", "V"), None);
    assert_eq!(value_of("A='1'\n", "V"), None);
    assert_eq!(fault_of("A='1\n"), EnvFileFault::Unterminated);
}

/// OP-25 (8): upstream does not check the names in the file. FILE-18
#[test]
fn a_bad_name_is_refused_although_another_key_is_wanted_file_18() {
    assert_eq!(fault_of("A='1'\nbad name='2'\n"), EnvFileFault::ShellCharacter);
    assert_eq!(fault_of("A='1'\nbäd='2'\n"), EnvFileFault::NameCharacter);
    assert_eq!(fault_of("A='1'\nB[0]='2'\n"), EnvFileFault::ArrayElement);
}

/// OP-25 (9): upstream puts the host path into its error. The parser knows no path, and its errors
/// hold no byte of the file. FILE-20
#[test]
fn errors_say_where_and_what_and_nothing_of_the_file_file_20() {
    let error =
        |text: &str| EnvFile::parse(text.as_bytes(), NameRules::Relaxed).err().unwrap().to_string();
    assert_eq!(
        error("A='1'\nPASSWORD=hunter2\n"),
        "line 2, column 10: a value must be enclosed in single quotes"
    );
    for bad in ["hunter2", "hunter2\0=", "hunter2 hunter2='a'", "A='hunter2'hunter2", "A='hunter2"]
    {
        assert!(!error(bad).contains("hunter2"), "{}", error(bad));
        let debug = format!("{:?}", EnvFile::faults(bad.as_bytes(), NameRules::Relaxed));
        assert!(!debug.contains("hunter2"), "{debug}");
    }
}

#[test]
fn a_fault_behind_a_long_value_points_back_to_its_start() {
    let faults = EnvFile::faults(b"A='one\ntwo\nB='three'\n", NameRules::Relaxed);
    assert_eq!(faults.len(), 1);
    assert_eq!(faults[0].fault(), EnvFileFault::TextAfterValue);
    assert_eq!((faults[0].position().line(), faults[0].opened_line()), (3, Some(1)));
}

#[test]
fn all_faults_are_found_in_one_go() {
    let text = b"A=1\nB='ok'\nexport C='x'\nD=\"two\nlines\" \nE='y'z\nF\nG='open";
    let codes: Vec<_> = EnvFile::faults(text, NameRules::Relaxed)
        .iter()
        .map(|error| (error.position().line(), error.fault().code()))
        .collect();
    assert_eq!(
        codes,
        [
            (1, "unquoted"),
            (3, "export"),
            (4, "double-quotes"),
            (6, "text-after-value"),
            (7, "missing-equals"),
            (8, "unterminated"),
        ]
    );
}

/// Bytes that matter to the grammar, so that arbitrary files come close to good ones.
fn file() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        6 => Just(b"A='".to_vec()),
        6 => Just(b"'\n".to_vec()),
        2 => proptest::sample::select(b" \t\n\r\0'\"#=+[]\\$AZaz_09.:-\x7f\xc3\xa9\xff".to_vec())
            .prop_map(|byte| vec![byte]),
        1 => vec(any::<u8>(), 0..8),
    ];
    vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, ..ProptestConfig::default() })]

    /// FILE-26, FILE-34: what parses has no faults, and the lookup agrees with the list.
    #[test]
    fn parsing_and_fault_finding_agree(text in file(), strict in any::<bool>()) {
        let rules = if strict { NameRules::Strict } else { NameRules::Relaxed };
        let faults = EnvFile::faults(&text, rules);
        match EnvFile::parse(&text, rules) {
            Err(error) => {
                prop_assert_eq!(faults.first(), Some(&error));
                prop_assert!(error.position().offset() <= text.len());
                let mut ordered = faults.clone();
                ordered.sort_by_key(|fault| fault.position());
                ordered.dedup();
                prop_assert_eq!(faults, ordered, "each place once, in order");
            }
            Ok(parsed) => {
                prop_assert!(faults.is_empty());
                for variable in parsed.variables() {
                    let value = variable.value();
                    prop_assert_eq!(parsed.get(variable.name()), Some(value));
                    prop_assert!(!value.contains(&b'\'') && !value.contains(&0));
                    prop_assert!(rules.fault(variable.name().as_bytes()).is_none());
                    prop_assert!(text[variable.offset()..].starts_with(variable.name().as_bytes()));
                }
            }
        }
    }

    /// FILE-36: the limits hold at every length around them.
    #[test]
    fn limits_are_exact_file_36(over in 0_usize..4, fill in 0_usize..3) {
        let length = 32_766 + over;
        let value = format!("A='{}'", "v".repeat(length));
        prop_assert_eq!(EnvFile::parse(value.as_bytes(), NameRules::Relaxed).is_ok(), length <= 32_768);
        let length = 126 + over;
        let name = format!("{}='v'", "n".repeat(length));
        prop_assert_eq!(EnvFile::parse(name.as_bytes(), NameRules::Relaxed).is_ok(), length <= 128);
        let length = 65_534 + over;
        let filler = ["#", "\n", " "][fill];
        let file = format!("A=''\n{}", filler.repeat(length - 5));
        prop_assert_eq!(EnvFile::parse(file.as_bytes(), NameRules::Relaxed).is_ok(), length <= 65_536);
    }
}
