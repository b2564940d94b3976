//! The differential proof of FILE-26: a file that we accept means the same to `bash --posix`.
//!
//! Files are generated from pieces that matter to one of the two readers. For each that our parser
//! accepts, bash sources it, and every variable whose name is a shell identifier must have the value
//! that we found. Names that bash itself owns, such as `RANDOM` or `UID`, cannot be compared and are
//! not generated; [`OWNED_BY_BASH`] lists them.
//!
//! `cargo xtask difftest --cases N --seed S` makes longer runs; a failure prints its seed.

use std::collections::BTreeMap;

use waybill_core::env::{file::EnvFile, name::NameRules};

use crate::{
    bash::{self, Question},
    env_file_generator::{Generated, Generator},
};

/// Assigning to these is an error, or reading them gives what bash computes.
const OWNED_BY_BASH: &[&str] = &[
    "BASHOPTS",
    "BASHPID",
    "BASH_ARGC",
    "BASH_ARGV",
    "BASH_ARGV0",
    "BASH_COMMAND",
    "BASH_COMPAT",
    "BASH_LINENO",
    "BASH_SOURCE",
    "BASH_SUBSHELL",
    "BASH_VERSINFO",
    "BASH_XTRACEFD",
    "DIRSTACK",
    "EPOCHREALTIME",
    "EPOCHSECONDS",
    "EUID",
    "FUNCNAME",
    "GROUPS",
    "HISTCMD",
    "LINENO",
    "OPTIND",
    "PIPESTATUS",
    "PPID",
    "RANDOM",
    "SECONDS",
    "SHELLOPTS",
    "SRANDOM",
    "UID",
    "_",
];

const BATCH: usize = 200;

/// FILE-26
#[test]
fn accepted_files_mean_the_same_to_bash_file_26() {
    let cases = setting("WAYBILL_DIFFTEST_CASES", 2_000);
    let seed = setting("WAYBILL_DIFFTEST_SEED", 20_261_115);
    let mut reached: BTreeMap<&'static str, u64> = BTreeMap::new();
    let mut accepted = 0;
    for first in (0..cases).step_by(BATCH) {
        let numbers: Vec<u64> = (first..cases.min(first + BATCH as u64)).collect();
        accepted += compare(seed, &numbers, &mut reached);
    }
    println!("{cases} files generated, {accepted} accepted and compared with bash, seed {seed}");
    for (feature, count) in &reached {
        println!("{count:>8}  {feature}");
    }
    if cases >= 2_000 {
        for feature in MUST_BE_REACHED {
            assert!(reached.contains_key(feature), "no generated file has: {feature}");
        }
        assert!(accepted * 2 > cases, "most files should be accepted, or little is compared");
    }
}

/// What a run must have seen; `accepted` and `refused` are our parser's words.
const MUST_BE_REACHED: &[&str] = &[
    "accepted: CR in a value",
    "accepted: UTF-8 in a value",
    "accepted: a file at the limit",
    "accepted: a name at the limit",
    "accepted: a value at the limit",
    "accepted: comment after a value",
    "accepted: comment line",
    "accepted: control character in a value",
    "accepted: double quote in a value",
    "accepted: empty value",
    "accepted: invalid UTF-8 in a value",
    "accepted: line break in a value",
    "accepted: name that is no shell identifier",
    "accepted: name twice",
    "accepted: number sign in a value",
    "accepted: one below a limit",
    "accepted: shell syntax in a value",
    "refused: BOM",
    "refused: CR outside quotes",
    "refused: NUL",
    "refused: one above a limit",
    "refused: odd form",
];

/// Compares one batch and returns how many of its files were accepted.
fn compare(seed: u64, numbers: &[u64], reached: &mut BTreeMap<&'static str, u64>) -> u64 {
    let mut questions = Vec::new();
    let mut expected = Vec::new();
    for &number in numbers {
        let Generated { text, features } = Generator::new(seed, number).file();
        let parsed = EnvFile::parse(&text, NameRules::Relaxed);
        for feature in features {
            let is_about_refusal = feature.starts_with("refused: ");
            if parsed.is_err() == is_about_refusal {
                *reached.entry(feature).or_default() += 1;
            }
        }
        let Ok(parsed) = parsed else { continue };
        let variables: Vec<_> = parsed
            .variables()
            .into_iter()
            .filter(|found| is_comparable(found.name()))
            .map(|found| (found.name().to_owned(), found.value().to_vec()))
            .collect();
        let names = variables.iter().map(|(name, _)| name.clone()).collect();
        questions.push(Question { text: text.clone(), names });
        expected.push((number, variables));
    }
    let locale = if (numbers[0] / BATCH as u64).is_multiple_of(2) { "C.UTF-8" } else { "C" };
    let answers = bash::ask(locale, &questions);
    for (((number, variables), answer), question) in expected.iter().zip(answers).zip(&questions) {
        let file = || String::from_utf8_lossy(&question.text).into_owned();
        let context = format!("case {number}, seed {seed}, locale {locale}");
        let values = answer.unwrap_or_else(|| panic!("{context}: bash fails on {:?}", file()));
        for ((name, ours), theirs) in variables.iter().zip(values) {
            assert_eq!(theirs.as_ref(), Some(ours), "{context}: {name} in {:?}", file());
        }
    }
    questions.len() as u64
}

fn is_comparable(name: &str) -> bool {
    let identifier = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.starts_with(|first: char| first.is_ascii_digit())
        && name.bytes().all(identifier)
        && !OWNED_BY_BASH.contains(&name)
}

/// The forms that we refuse are refused for a reason: bash reads something else than a person sees.
/// This also proves that the comparison above can fail. FILE-30
#[test]
fn bash_reads_refused_forms_differently_file_30() {
    let sees = |text: &str, expected: Option<&str>| {
        assert!(EnvFile::parse(text.as_bytes(), NameRules::Relaxed).is_err(), "{text:?}");
        let question = Question { text: text.as_bytes().to_vec(), names: vec!["V".to_owned()] };
        let answer = bash::ask("C.UTF-8", &[question]).remove(0).and_then(|mut all| all.remove(0));
        assert_eq!(answer.as_deref(), expected.map(str::as_bytes), "{text:?}");
    };
    sees("V='a'#x\n", Some("a#x"));
    sees("V='a''b'\n", Some("ab"));
    sees("V='it'\\''s'\n", Some("it's"));
    sees("V= 'a'\n", None);
    sees("V ='a'\n", None);
    sees("V='a' W='b'\n", Some("a"));
    sees("V='a' true\n", None);
    sees("V='a'\r\n", Some("a\r"));
    sees("V='a\0b'\n", Some("ab"));
    sees("\u{feff}V='a'\n", None);
    sees("X[='1'\nV='2'\n#]\n", None);
    sees("V='1'\nV+='2'\n", Some("12"));
    sees("V=$'a\\tb'\n", Some("a\tb"));
}

#[expect(clippy::disallowed_methods, reason = "the one way to tell a test how long to run")]
fn setting(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|error| panic!("{name}={text}: {error}")),
        Err(_) => default,
    }
}
