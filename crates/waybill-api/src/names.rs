//! The rules that Kubernetes has for names and keys, with its own texts.
//!
//! Each function returns everything that is wrong, in upstream's order; an empty list means that the
//! text passed. The doubled spaces in the examples are upstream's.

/// A DNS-1123 label, such as the name of a volume.
pub fn label_faults(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    faults.extend(length_fault(text, LABEL_BYTES));
    if !is_label(text) {
        let only_dots = is_subdomain(text);
        faults.push(if only_dots { "must not contain dots" } else { LABEL_RULE }.to_owned());
    }
    faults
}

/// A DNS-1123 subdomain, such as the name of a ConfigMap.
pub fn subdomain_faults(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    faults.extend(length_fault(text, SUBDOMAIN_BYTES));
    if !is_subdomain(text) {
        faults.push(SUBDOMAIN_RULE.to_owned());
    }
    faults
}

/// A key of a ConfigMap or Secret, which may become a file name.
pub fn config_map_key_faults(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    faults.extend(length_fault(text, SUBDOMAIN_BYTES));
    if text.is_empty() || !text.bytes().all(is_key_byte) {
        faults.push(KEY_RULE.to_owned());
    }
    let dots = match text {
        "." => Some("must not be '.'"),
        ".." => Some("must not be '..'"),
        _ if text.starts_with("..") => Some("must not start with '..'"),
        _ => None,
    };
    faults.extend(dots.map(str::to_owned));
    faults
}

/// The key of a label or annotation: a name with an optional DNS subdomain before a `/`.
pub fn qualified_name_faults(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let parts: Vec<_> = text.split('/').collect();
    let name = match *parts.as_slice() {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                faults.push("prefix part must be non-empty".to_owned());
            } else {
                let wrong = subdomain_faults(prefix);
                faults.extend(wrong.iter().map(|fault| format!("prefix part {fault}")));
            }
            name
        }
        _ => {
            return vec![format!(
                "a qualified name {NAME_RULE} with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    }
    faults.extend(length_fault(name, LABEL_BYTES).map(|fault| format!("name part {fault}")));
    if !(name.bytes().all(is_key_byte) && has_plain_ends(name)) {
        faults.push(format!("name part {NAME_RULE}"));
    }
    faults
}

/// The value of a label; it may be empty.
pub fn label_value_faults(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    faults.extend(length_fault(text, LABEL_BYTES));
    let is_name = text.bytes().all(is_key_byte) && has_plain_ends(text);
    if !text.is_empty() && !is_name {
        faults.push(LABEL_VALUE_RULE.to_owned());
    }
    faults
}

/// A name that may stand between two slashes of a path, such as the name of a role.
pub fn path_segment_faults(text: &str) -> Vec<String> {
    if matches!(text, "." | "..") {
        return vec![format!("may not be '{text}'")];
    }
    let illegal = ['/', '%'].into_iter().filter(|&c| text.contains(c));
    illegal.map(|c| format!("may not contain '{c}'")).collect()
}

/// The name of a port: an IANA service name.
pub fn port_name_faults(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    faults.extend(length_fault(text, PORT_NAME_BYTES));
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if text.is_empty() || !text.bytes().all(allowed) {
        faults.push(
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned(),
        );
    }
    if !text.bytes().any(|byte| byte.is_ascii_lowercase()) {
        faults.push("must contain at least one letter (a-z)".to_owned());
    }
    if text.contains("--") {
        faults.push("must not contain consecutive hyphens".to_owned());
    }
    if text.starts_with('-') || text.ends_with('-') {
        faults.push("must not begin or end with a hyphen".to_owned());
    }
    faults
}

const LABEL_BYTES: usize = 63;
/// RFC 6335, section 5.1.
const PORT_NAME_BYTES: usize = 15;
const SUBDOMAIN_BYTES: usize = 253;

const LABEL_RULE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric \
    characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or \
    '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

const SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case \
    alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character \
    (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

const KEY_RULE: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or \
    '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is \
    '[-._a-zA-Z0-9]+')";

const NAME_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start \
    and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex \
    used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

const LABEL_VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric \
    characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. \
    'MyValue',  or 'my_value',  or '12345', regex used for validation is \
    '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

fn length_fault(text: &str, limit: usize) -> Option<String> {
    (text.len() > limit).then(|| format!("must be no more than {limit} bytes"))
}

fn is_label(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    text.bytes().all(allowed) && has_plain_ends(text)
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

fn is_key_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_')
}

/// Whether there is a first and a last byte, and both are letters or digits.
fn has_plain_ends(text: &str) -> bool {
    let plain = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    plain(text.as_bytes().first()) && plain(text.as_bytes().last())
}

/// Whether nobody sees a character in a text of several lines.
pub(crate) fn is_unseen(c: char) -> bool {
    c.is_control() && !matches!(c, '\t' | '\n' | '\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(rule: fn(&str) -> Vec<String>, text: &str, expected: &[&str]) {
        assert_eq!(rule(text), expected, "{text:?}");
    }

    #[test]
    fn labels() {
        let label = |text: &str, expected: &[&str]| check(label_faults, text, expected);
        label("config", &[]);
        label("0", &[]);
        label("a-b--c9", &[]);
        label(&"x".repeat(63), &[]);
        label(&"x".repeat(64), &["must be no more than 63 bytes"]);
        label("a.b", &["must not contain dots"]);
        for bad in ["", "A", "-a", "a-", "a_b", "a b", "é", "a/b", "a..b"] {
            label(bad, &[LABEL_RULE]);
        }
    }

    #[test]
    fn subdomains() {
        let subdomain = |text: &str, expected: &[&str]| check(subdomain_faults, text, expected);
        subdomain("vault-secrets.prod", &[]);
        subdomain(&"x".repeat(253), &[]);
        subdomain(&"x".repeat(254), &["must be no more than 253 bytes"]);
        for bad in ["", ".", "a..b", ".a", "a.", "a.-b", "A.b", "a_b"] {
            subdomain(bad, &[SUBDOMAIN_RULE]);
        }
    }

    #[test]
    fn config_map_keys() {
        let key = |text: &str, expected: &[&str]| check(config_map_key_faults, text, expected);
        key("key.name", &[]);
        key("KEY_NAME", &[]);
        key(".hidden", &[]);
        key("1", &[]);
        key(&"x".repeat(253), &[]);
        key(&"x".repeat(254), &["must be no more than 253 bytes"]);
        key("", &[KEY_RULE]);
        key("a b", &[KEY_RULE]);
        key("a/b", &[KEY_RULE]);
        key(".", &["must not be '.'"]);
        key("..", &["must not be '..'"]);
        key("..data", &["must not start with '..'"]);
        key("../a", &[KEY_RULE, "must not start with '..'"]);
    }

    #[test]
    fn qualified_names() {
        let name = |text: &str, expected: &[&str]| check(qualified_name_faults, text, expected);
        let rule = format!("name part {NAME_RULE}");
        name("app", &[]);
        name("app.kubernetes.io/Name_1", &[]);
        name(&"x".repeat(63), &[]);
        name(&"x".repeat(64), &["name part must be no more than 63 bytes"]);
        name("", &["name part must be non-empty", &rule]);
        name("-a", &[&rule]);
        name("/a", &["prefix part must be non-empty"]);
        name("a/", &["name part must be non-empty", &rule]);
        name("A/b", &[&format!("prefix part {SUBDOMAIN_RULE}")]);
        assert!(qualified_name_faults("a/b/c")[0].starts_with("a qualified name must consist of"));
    }

    #[test]
    fn label_values() {
        let value = |text: &str, expected: &[&str]| check(label_value_faults, text, expected);
        value("", &[]);
        value("My_value.1", &[]);
        value(&"x".repeat(64), &["must be no more than 63 bytes"]);
        value("-a", &[LABEL_VALUE_RULE]);
        value("a b", &[LABEL_VALUE_RULE]);
    }

    #[test]
    fn path_segments() {
        let segment = |text: &str, expected: &[&str]| check(path_segment_faults, text, expected);
        segment("system:node", &[]);
        segment("Any thing", &[]);
        segment(".", &["may not be '.'"]);
        segment("..", &["may not be '..'"]);
        segment("a/b%", &["may not contain '/'", "may not contain '%'"]);
    }

    #[test]
    fn port_names() {
        let port = |text: &str, expected: &[&str]| check(port_name_faults, text, expected);
        let bytes = "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)";
        port("http", &[]);
        port("8080", &["must contain at least one letter (a-z)"]);
        port("HTTP", &[bytes, "must contain at least one letter (a-z)"]);
        port("a--b", &["must not contain consecutive hyphens"]);
        port("-a", &["must not begin or end with a hyphen"]);
        port(&"a".repeat(16), &["must be no more than 15 bytes"]);
    }
}
