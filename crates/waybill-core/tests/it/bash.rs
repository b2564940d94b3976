//! Asks `bash --posix` what an env file means to it.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// A file and the names whose values we want to know after sourcing it.
pub(crate) struct Question {
    pub(crate) text: Vec<u8>,
    pub(crate) names: Vec<String>,
}

/// What bash says: for each name its value, `None` if it is unset.
///
/// The answers are `None` as a whole if bash gave up on the file.
pub(crate) type Answer = Option<Vec<Option<Vec<u8>>>>;

/// Sources every file in a subshell of its own; one bash for the whole batch keeps this fast.
pub(crate) fn ask(locale: &str, questions: &[Question]) -> Vec<Answer> {
    let scratch = Scratch::new();
    let mut script = String::from(
        // `${!1}` is the value of the variable whose name is in `$1`; no variable of ours is used,
        // so none can collide with those of the file.
        "tell() { while [ \"$#\" -gt 0 ]; do printf '%s\\0%s\\0' \"${!1+set}\" \"${!1-}\"; shift; \
         done; }\n",
    );
    for (number, question) in questions.iter().enumerate() {
        let file = scratch.path.join(format!("{number}.env"));
        fs::write(&file, &question.text).expect("writing to the scratch directory");
        script.push_str(&format!(
            "( . {}; tell {} ) 2>/dev/null && printf 'ok\\0' || printf 'failed\\0'\n",
            file.display(),
            question.names.join(" ")
        ));
    }
    let script_file = scratch.path.join("script");
    fs::write(&script_file, script).expect("writing to the scratch directory");
    let output = bash(locale, &scratch.path.join("empty"), script_file.as_os_str());
    parse(&output, questions)
}

fn bash(locale: &str, empty: &Path, script: &OsStr) -> Vec<u8> {
    let output = Command::new("/bin/bash")
        .arg("--posix")
        .arg(script)
        .current_dir(empty)
        .env_clear()
        // A name that is no shell identifier makes its line a command; here none can be found.
        .env("PATH", empty)
        .env("LC_ALL", locale)
        .stdin(Stdio::null())
        .output()
        .expect("bash runs; on Debian: apt-get install bash");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn parse(output: &[u8], questions: &[Question]) -> Vec<Answer> {
    let mut fields = output.split(|&byte| byte == 0);
    let mut next = || fields.next().expect("bash answers every question").to_vec();
    let mut answer = |question: &Question| {
        let mut values = Vec::new();
        loop {
            match next().as_slice() {
                b"ok" => {
                    assert_eq!(values.len(), question.names.len());
                    return Some(values);
                }
                b"failed" => return None,
                b"set" => values.push(Some(next())),
                b"" => {
                    next();
                    values.push(None);
                }
                other => panic!("unexpected answer {:?}", String::from_utf8_lossy(other)),
            }
        }
    };
    questions.iter().map(&mut answer).collect()
}

/// A directory of our own that is gone afterwards.
struct Scratch {
    path: PathBuf,
}

impl Scratch {
    fn new() -> Self {
        static NUMBER: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("waybill-bash-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(path.join("empty")).expect("the temporary directory is writable");
        Self { path }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}
