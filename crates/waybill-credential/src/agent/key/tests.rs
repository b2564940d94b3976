//! Each thing that separates two askers, and each that does not.

use std::{fs::File, path::PathBuf, time::Duration};

use super::*;

const QUESTION: &str =
    r#"{"kind":"ExecCredential","spec":{"cluster":{"server":"https://a"},"interactive":false}}"#;

struct Asked {
    dir: tempfile::TempDir,
    command: String,
    args: Vec<String>,
    environment: Vec<(OsString, OsString)>,
    ignored: Vec<String>,
    question: String,
    directory: Option<PathBuf>,
    per_directory: bool,
}

impl Asked {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("plugin"), "one").unwrap();
        Self {
            directory: Some(dir.path().to_owned()),
            per_directory: false,
            dir,
            command: "plugin".to_owned(),
            args: vec!["a".to_owned(), "b".to_owned()],
            environment: vec![variable("AWS_PROFILE", "dev"), variable("HOME", "/root")],
            ignored: Vec::new(),
            question: QUESTION.to_owned(),
        }
    }

    fn program(&self) -> PathBuf {
        self.dir.path().join("plugin")
    }

    fn key(&self) -> Key {
        Key::of(&KeyParts {
            program: &self.program(),
            command: &self.command,
            args: &self.args,
            environment: &self.environment,
            ignored: &self.ignored,
            question: &self.question,
            directory: self.directory.as_deref(),
            per_directory: self.per_directory,
        })
        .unwrap()
    }
}

fn variable(name: &str, value: &str) -> (OsString, OsString) {
    (name.into(), value.into())
}

#[track_caller]
fn check(changed: impl FnOnce(&mut Asked), separates: bool) {
    let mut asked = Asked::new();
    let before = asked.key();
    changed(&mut asked);
    assert_eq!(before != asked.key(), separates);
}

/// CRED-28: any field that differs.
#[test]
fn whatever_could_matter_to_the_plugin_separates_cred_28() {
    check(|asked| asked.command = "./plugin".to_owned(), true);
    check(|asked| asked.args = vec!["ab".to_owned()], true);
    check(|asked| asked.args.reverse(), true);
    check(|asked| asked.args.push(String::new()), true);
    check(|asked| asked.environment[0] = variable("AWS_PROFILE", "prod"), true);
    check(|asked| asked.environment.push(variable("UNKNOWN", "")), true);
    check(|asked| asked.question = QUESTION.replace("https://a", "https://b"), true);
    check(|asked| asked.per_directory = true, true);
    // What ends one list cannot begin the next.
    check(
        |asked| {
            let (name, value) = asked.environment.remove(0);
            asked.args.extend([name, value].map(|text| text.into_string().unwrap()));
        },
        true,
    );
}

#[test]
fn a_plugin_that_was_replaced_separates() {
    check(|asked| fs::write(asked.program(), "longer").unwrap(), true);
    check(
        |asked| {
            let file = File::options().write(true).open(asked.program()).unwrap();
            let before = file.metadata().unwrap().modified().unwrap();
            file.set_modified(before - Duration::from_secs(1)).unwrap();
        },
        true,
    );
    check(
        |asked| {
            fs::write(asked.dir.path().join("other"), "one").unwrap();
            fs::rename(asked.dir.path().join("other"), asked.program()).unwrap();
        },
        true,
    );
}

#[test]
fn where_somebody_sits_does_not_separate() {
    check(|asked| asked.environment.reverse(), false);
    check(|asked| asked.question = QUESTION.replace("false", "true"), false);
    for name in ["PWD", "SHLVL", "_", "TERM", "TERM_SESSION_ID", "WINDOWID", "KUBERNETES_EXEC_INFO"]
    {
        check(|asked| asked.environment.push(variable(name, "x")), false);
    }
    let ignored = |name: &str, pattern: &str| {
        let mut asked = Asked::new();
        asked.ignored = vec![pattern.to_owned()];
        let before = asked.key();
        asked.environment.push(variable(name, "x"));
        before == asked.key()
    };
    assert!(ignored("BUILD_NUMBER", "BUILD_NUMBER") && ignored("BUILD_NUMBER", "BUILD_*"));
    assert!(!ignored("BUILD_NUMBER", "BUILD") && !ignored("TERMINAL_USER", "X"));
}

/// Whether askers in two directories, both with a file `key.json`, are separated.
fn directory_separates(change: impl Fn(&mut Asked)) -> bool {
    let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let mut asked = Asked::new();
    change(&mut asked);
    let keys = dirs.map(|dir| {
        fs::write(dir.path().join("key.json"), "").unwrap();
        asked.directory = Some(dir.path().to_owned());
        asked.key()
    });
    keys[0] != keys[1]
}

/// Hole: a plugin with a relative path got what was given in another directory.
#[test]
fn a_directory_separates_if_a_path_leads_into_it_cred_28() {
    assert!(!directory_separates(|_| {}));
    assert!(directory_separates(|asked| asked.per_directory = true));
    let argument = |text: &'static str| move |asked: &mut Asked| asked.args.push(text.to_owned());
    assert!(
        directory_separates(argument("--key=key.json")) && directory_separates(argument("./x"))
    );
    assert!(!directory_separates(argument("none.json")), "no plugin can see a file there");
    let with = |name: &'static str| {
        move |asked: &mut Asked| asked.environment.push(variable(name, "key.json"))
    };
    assert!(directory_separates(with("AWS_CONFIG_FILE")));
    assert!(!directory_separates(with("USER")) && !directory_separates(with("OLDPWD")));
    let ignored = |asked: &mut Asked| {
        asked.ignored = vec!["AWS_*".to_owned()];
        with("AWS_CONFIG_FILE")(asked);
    };
    assert!(!directory_separates(ignored), "whoever says that it does not matter");
}
