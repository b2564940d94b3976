//! Runs the test vectors at the top of the repository, which other implementations can run too.

use std::fs;

use serde_json::Value;
use waybill_core::env::{
    expand::expand,
    file::EnvFile,
    merge::{EnvVar, Environment, Tier},
    name::{EnvName, NameRules},
    origin::Origin,
    value::EnvValue,
};

/// FILE-26..FILE-38
#[test]
fn accepted_env_files_define_their_variables() {
    for case in cases("envfile/accepted.json") {
        let rule = text(&case["rule"]);
        let file = bytes(&case["file"]);
        let parsed = EnvFile::parse(&file, rules(&case))
            .unwrap_or_else(|error| panic!("{rule}: refused: {error}"));
        let found: Vec<_> = parsed
            .variables()
            .iter()
            .map(|variable| (variable.name().as_bytes().to_vec(), variable.value().to_vec()))
            .collect();
        assert_eq!(found, pairs(&case["variables"]), "{rule}");
        for (name, value) in &found {
            let name = std::str::from_utf8(name).unwrap();
            assert_eq!(parsed.get(name), Some(value.as_slice()), "{rule}");
        }
        assert!(EnvFile::faults(&file, rules(&case)).is_empty(), "{rule}");
    }
}

/// FILE-17, FILE-18, FILE-30..FILE-32, FILE-35..FILE-37
#[test]
fn rejected_env_files_name_fault_line_and_column() {
    for case in cases("envfile/rejected.json") {
        let rule = text(&case["rule"]);
        let file = bytes(&case["file"]);
        let error = EnvFile::parse(&file, rules(&case)).err().expect(&rule);
        let position = error.position();
        assert_eq!(
            (error.fault().code(), position.line() as u64, position.column() as u64),
            (
                text(&case["fault"]).as_str(),
                case["line"].as_u64().unwrap(),
                case["column"].as_u64().unwrap()
            ),
            "{rule}"
        );
        assert_eq!(EnvFile::faults(&file, rules(&case))[0], error, "{rule}");
    }
}

/// NAME-01, NAME-02, NAME-04, NAME-09, NAME-20
#[test]
fn names_follow_both_rule_sets() {
    for case in cases("envname/names.json") {
        let name = bytes(&case["name"]);
        for (rules, field) in [(NameRules::Relaxed, "relaxed"), (NameRules::Strict, "strict")] {
            let accepted = EnvName::parse_bytes(&name, rules).is_ok();
            assert_eq!(Some(accepted), case[field].as_bool(), "{field}: {case}");
        }
    }
}

/// NAME-03
#[test]
fn bytes_follow_both_rule_sets() {
    for case in cases("envname/bytes.json") {
        let rules = name_rules(&text(&case["rules"]));
        for byte in 0..=u8::MAX {
            let alone = EnvName::parse_bytes(&[byte], rules).is_ok();
            let second = EnvName::parse_bytes(&[b'A', byte], rules).is_ok();
            assert_eq!(alone, in_ranges(byte, &case["alone"]), "{rules:?} {byte}");
            assert_eq!(second, in_ranges(byte, &case["second"]), "{rules:?} A{byte}");
        }
    }
}

/// EXEC-02..EXEC-07, EXEC-09, EXEC-13..EXEC-16, NAME-14
#[test]
fn tiers_are_merged_by_precedence() {
    let tiers = [
        (Tier::Baseline, "baseline", Origin::Image),
        (Tier::Caller, "caller", Origin::Caller),
        (Tier::ApiServer, "apiserver", Origin::ApiServer),
        (Tier::Node, "node", Origin::Node),
        (Tier::Runtime, "runtime", Origin::Runtime),
    ];
    for case in cases("precedence/exec.json") {
        let mut environment = Environment::new();
        for (tier, field, origin) in &tiers {
            let vars = pairs(&case[*field]).into_iter().map(|(name, value)| EnvVar {
                name: EnvName::parse_bytes(&name, NameRules::Relaxed).unwrap(),
                value: EnvValue::plain(value).unwrap(),
                origin: origin.clone(),
            });
            environment.extend(*tier, vars);
        }
        let found: Vec<_> = environment
            .iter()
            .map(|entry| (entry.name().as_bytes().to_vec(), entry.value().expose().to_vec()))
            .collect();
        assert_eq!(found, pairs(&case["expect"]), "{case}");
    }
}

/// NAME-10
#[test]
fn references_are_expanded() {
    for case in cases("expansion/references.json") {
        let known: Vec<_> = case["known"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, value)| (name.clone(), EnvValue::plain(bytes(value)).unwrap()))
            .collect();
        let lookup = |name: &[u8]| {
            known.iter().find(|(known, _)| known.as_bytes() == name).map(|(_, value)| value)
        };
        let expanded = expand(&bytes(&case["template"]), lookup, usize::MAX).unwrap();
        assert_eq!(expanded.expose(), bytes(&case["expect"]), "{case}");
    }
}

fn cases(file: &str) -> Vec<Value> {
    let path = format!("{}/../../vectors/{file}", env!("CARGO_MANIFEST_DIR"));
    let content = fs::read(&path).unwrap_or_else(|error| panic!("reading {path}: {error}"));
    let mut document: Value = serde_json::from_slice(&content).unwrap();
    match document["cases"].take() {
        Value::Array(cases) if !cases.is_empty() => cases,
        _ => panic!("{path} holds no cases"),
    }
}

fn text(value: &Value) -> String {
    value.as_str().expect("a string").to_owned()
}

/// The four forms of a byte string; see `vectors/README.md`.
fn bytes(value: &Value) -> Vec<u8> {
    match value {
        Value::String(text) => text.as_bytes().to_vec(),
        Value::Array(parts) => parts.iter().flat_map(bytes).collect(),
        Value::Object(form) => match (form.get("hex"), form.get("repeat")) {
            (Some(hex), None) => text(hex)
                .split_whitespace()
                .map(|byte| u8::from_str_radix(byte, 16).unwrap())
                .collect(),
            (None, Some(part)) => {
                bytes(part).repeat(usize::try_from(form["times"].as_u64().unwrap()).unwrap())
            }
            _ => panic!("neither hex nor repeat: {value}"),
        },
        _ => panic!("not a byte string: {value}"),
    }
}

fn pairs(value: &Value) -> Vec<(Vec<u8>, Vec<u8>)> {
    let pairs = value.as_array().map(Vec::as_slice).unwrap_or_default();
    pairs.iter().map(|pair| (bytes(&pair[0]), bytes(&pair[1]))).collect()
}

fn rules(case: &Value) -> NameRules {
    name_rules(case.get("names").and_then(Value::as_str).unwrap_or("relaxed"))
}

fn name_rules(word: &str) -> NameRules {
    match word {
        "relaxed" => NameRules::Relaxed,
        "strict" => NameRules::Strict,
        _ => panic!("unknown rules {word}"),
    }
}

fn in_ranges(byte: u8, ranges: &Value) -> bool {
    let inside = |range: &Value| {
        (range[0].as_u64().unwrap()..=range[1].as_u64().unwrap()).contains(&u64::from(byte))
    };
    ranges.as_array().unwrap().iter().any(inside)
}
