//! One word of a command line after the other: which of them is a secret because of what stands before it, or within it.

use super::{HIDDEN, QUOTES, shape};

/// Parts of names that are called secrets. Each is compared with a whole part of a name, in lower case.
const SECRET_PARTS: [&str; 24] = [
    "apikey",
    "auth",
    "authorization",
    "authtoken",
    "bearer",
    "cookie",
    "credential",
    "credentials",
    "jwt",
    "otp",
    "pass",
    "passcode",
    "passin",
    "passout",
    "passphrase",
    "passwd",
    "password",
    "passwords",
    "pwd",
    "secret",
    "secrets",
    "signature",
    "token",
    "tokens",
];

/// Ends of parts that say the same, as in `PGPASSWORD` and `accesstoken`.
const SECRET_ENDS: [&str; 6] = ["password", "passwd", "passphrase", "secret", "token", "apikey"];

/// What makes a `key` a secret one when it stands before it.
const KEYS: [&str; 8] =
    ["access", "account", "api", "auth", "encryption", "master", "private", "signing"];

/// A name that ends so tells where a secret is, or about it, and not the secret.
const ABOUT: [&str; 22] = [
    "dir",
    "endpoint",
    "expiration",
    "expires",
    "expiry",
    "file",
    "filename",
    "format",
    "host",
    "id",
    "length",
    "method",
    "mode",
    "name",
    "namespace",
    "path",
    "policy",
    "size",
    "ttl",
    "type",
    "url",
    "uri",
];

/// Programs whose flags of one letter have a secret as their value, and those letters. A value may follow in the same
/// word where a dash says so.
const SHORT_FLAGS: [(&str, &str, bool); 19] = [
    ("7z", "p", true),
    ("curl", "u", false),
    ("curl", "U", false),
    ("docker", "p", false),
    ("helm", "p", false),
    ("htpasswd", "b", false),
    ("ldapmodify", "w", false),
    ("ldapsearch", "w", false),
    ("mariadb", "p", true),
    ("mongo", "p", false),
    ("mongosh", "p", false),
    ("mysql", "p", true),
    ("mysqladmin", "p", true),
    ("mysqldump", "p", true),
    ("podman", "p", false),
    ("redis-cli", "a", false),
    ("smbclient", "U", false),
    ("sshpass", "p", true),
    ("zip", "P", false),
];

/// Words after which the next one is the program.
const PREFIXES: [&str; 8] = ["sudo", "exec", "nohup", "time", "env", "command", "nice", "then"];

/// Goes over the words of a command.
#[derive(Debug)]
pub(super) struct Scanner {
    program: String,
    /// The next word is a value that is called a secret.
    value_follows: bool,
    /// Everything that follows is one.
    rest_follows: bool,
}

impl Scanner {
    /// Of a program whose name is known; if it is empty, the first word is the name.
    pub(super) fn new(program: &str) -> Self {
        let program = program.rsplit('/').next().unwrap_or_default().to_owned();
        Self { program, value_follows: false, rest_follows: false }
    }

    /// Whether this word is the value of what stood before it.
    pub(super) fn takes_value(&mut self, word: &str) -> bool {
        let follows = std::mem::take(&mut self.value_follows);
        // Two flags in a row: the first had no value.
        follows && !word.starts_with("--") && !word.is_empty()
    }

    pub(super) fn hides_the_rest(&mut self) -> bool {
        std::mem::take(&mut self.rest_follows)
    }

    /// What is shown in place of the word, if that is not the word itself.
    pub(super) fn hide_word(&mut self, word: &str) -> Option<String> {
        if self.is_separator(word) {
            self.program.clear();
            return None;
        }
        if self.program.is_empty() && !word.contains('=') {
            let name = word.rsplit('/').next().unwrap_or_default();
            if !PREFIXES.contains(&name) && !word.starts_with('-') {
                name.clone_into(&mut self.program);
            }
        }
        let bare = word.trim_matches(|letter| QUOTES.contains(&letter));
        let lower = bare.to_ascii_lowercase();
        if let Some(name) = lower.strip_suffix(':') {
            self.rest_follows = is_secret_name(name);
        } else if ["bearer", "basic", "digest", "negotiate"].contains(&lower.as_str()) {
            self.value_follows = true;
        } else if let Some(flag) = bare.strip_prefix('-') {
            let short = self.hide_short_flag(flag);
            if short.is_some() {
                return short;
            }
            self.value_follows |= is_secret_name(flag);
        }
        hide_within(word)
    }

    /// `;`, `|`, `&&` and the like begin another command.
    fn is_separator(&self, word: &str) -> bool {
        word.ends_with(';') || word.chars().all(|letter| "|&;(){}".contains(letter))
    }

    fn hide_short_flag(&mut self, flag: &str) -> Option<String> {
        for (program, letter, joined) in SHORT_FLAGS {
            if program != self.program {
                continue;
            }
            if flag == letter {
                // `mysql -p` asks for the password; what follows is a database.
                self.value_follows = !(joined && self.program.starts_with("my"));
            } else if joined && flag.starts_with(letter) && !flag.starts_with('-') {
                return Some(format!("-{letter}{HIDDEN}"));
            }
        }
        None
    }
}

/// Where the value begins, if the word is `NAME=VALUE` or `--NAME=VALUE` and the name is called a secret.
pub(super) fn is_assignment(word: &str) -> Option<usize> {
    let (name, value) = word.split_once('=')?;
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let is_name = !name.is_empty() && name.chars().all(plain);
    (is_name && !value.is_empty() && is_secret_name(name)).then_some(name.len() + 1)
}

/// Whether a flag, variable, header or field is called a secret.
pub(super) fn is_secret_name(name: &str) -> bool {
    let parts: Vec<String> = parts(name);
    if parts.last().is_some_and(|last| ABOUT.contains(&last.as_str())) {
        return false;
    }
    let is_secret = |part: &String| {
        SECRET_PARTS.contains(&part.as_str()) || SECRET_ENDS.iter().any(|end| part.ends_with(end))
    };
    let is_key = |pair: &[String]| match pair {
        [kind, key] => key == "key" && (KEYS.contains(&kind.as_str()) || is_secret(kind)),
        _ => false,
    };
    parts.iter().any(is_secret) || parts.windows(2).any(is_key)
}

/// In lower case; also `camelCase` has parts.
fn parts(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut was_lower = false;
    for letter in name.chars() {
        let is_border = !letter.is_ascii_alphanumeric();
        if is_border || (was_lower && letter.is_ascii_uppercase()) {
            parts.push(String::new());
        }
        was_lower = letter.is_ascii_lowercase();
        if let Some(last) = parts.last_mut().filter(|_| !is_border) {
            last.push(letter.to_ascii_lowercase());
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// Parts of a word that are secrets wherever they stand: in URLs, in JSON, in queries, and by their shape.
fn hide_within(word: &str) -> Option<String> {
    let steps: [fn(&str) -> Option<String>; 4] = [
        shape::hide_password_of_url,
        shape::hide_fields,
        shape::hide_parameters,
        shape::hide_tokens,
    ];
    let mut safe: Option<String> = None;
    for step in steps {
        if let Some(hidden) = step(safe.as_deref().unwrap_or(word)) {
            safe = Some(hidden);
        }
    }
    safe
}
