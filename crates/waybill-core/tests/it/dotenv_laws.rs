//! The laws of rewriting dotenv files, over generated ones.

use proptest::{collection::vec, prelude::*};
use waybill_core::env::{dotenv::rewrite, file::EnvFile, name::NameRules};

type Variables = Vec<(String, Vec<u8>)>;

fn variables(text: &[u8]) -> Option<Variables> {
    let file = EnvFile::parse(text, NameRules::Relaxed).ok()?;
    let pair = |found: waybill_core::env::file::Assignment<'_>| {
        (found.name().to_owned(), found.value().to_vec())
    };
    Some(file.assignments().map(pair).collect())
}

fn file() -> impl Strategy<Value = Vec<u8>> {
    let value = prop_oneof![
        "[a-z &;:/?]{0,8}".prop_map(|text| text),
        "[a-z #$]{0,8}".prop_map(|text| format!("'{text}'")),
        r#"([a-z #'\n]|\\[nrt"\\$]){0,8}"#.prop_map(|text| format!("\"{text}\"")),
    ];
    let line = ("(export )?[A-C] ?= ?", value, "( # [a-z]{0,3})?\r?\n")
        .prop_map(|(name, value, end)| format!("{name}{value}{end}").into_bytes());
    let noise =
        prop_oneof![Just(b"\n".to_vec()), Just(b"# note\r\n".to_vec()), vec(any::<u8>(), 0..6),];
    vec(prop_oneof![6 => line, 1 => noise], 0..8).prop_map(|lines| lines.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, ..ProptestConfig::default() })]

    #[test]
    fn what_is_rewritten_parses_and_is_a_fixed_point(text in file()) {
        if let Ok(once) = rewrite(&text, NameRules::Relaxed) {
            prop_assert!(variables(once.expose()).is_some());
            let twice = rewrite(once.expose(), NameRules::Relaxed).unwrap_or_else(|_| panic!("good stays good"));
            prop_assert_eq!(once.expose(), twice.expose());
        }
    }

    #[test]
    fn a_good_file_keeps_its_variables(text in file()) {
        if let Some(before) = variables(&text) {
            let after = rewrite(&text, NameRules::Relaxed).unwrap_or_else(|_| panic!("good files are rewritten"));
            prop_assert_eq!(variables(after.expose()), Some(before));
        }
    }
}
