//! Env files and dotenv files from a container, which may be hostile.

#![no_main]

use libfuzzer_sys::fuzz_target;
use waybill_core::env::{dotenv, file::EnvFile, name::NameRules};

fuzz_target!(|text: &[u8]| {
    for rules in [NameRules::Relaxed, NameRules::Strict] {
        let faults = EnvFile::faults(text, rules);
        let rewritten = dotenv::rewrite(text, rules);
        match EnvFile::parse(text, rules) {
            Err(error) => assert_eq!(faults.first(), Some(&error)),
            Ok(file) => {
                assert!(faults.is_empty());
                for variable in file.variables() {
                    assert_eq!(file.get(variable.name()), Some(variable.value()));
                    assert!(rules.fault(variable.name().as_bytes()).is_none());
                    assert!(!variable.value().contains(&b'\'') && !variable.value().contains(&0));
                }
                // Unless the line break that is added makes the file too long.
                if let Ok(rewritten) = &rewritten {
                    assert_eq!(pairs(&file), pairs(&parse(rewritten.expose(), rules)));
                } else {
                    assert!(text.len() > 60_000);
                }
            }
        }
        if let Ok(rewritten) = rewritten {
            parse(rewritten.expose(), rules);
            let again = dotenv::rewrite(rewritten.expose(), rules).ok().expect("good stays good");
            assert_eq!(rewritten.expose(), again.expose());
        }
    }
});

fn parse(text: &[u8], rules: NameRules) -> EnvFile<'_> {
    EnvFile::parse(text, rules).ok().expect("what is rewritten parses")
}

fn pairs<'a>(file: &EnvFile<'a>) -> Vec<(&'a str, &'a [u8])> {
    file.assignments().map(|found| (found.name(), found.value())).collect()
}
