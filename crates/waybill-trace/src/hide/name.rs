//! Which names of flags, variables, headers and fields are called secrets.

/// Parts of names that are called secrets. Each is compared with a whole part of a name, in lower case.
const SECRET_PARTS: [&str; 33] = [
    "apikey",
    "auth",
    "authorization",
    "authtoken",
    "bearer",
    "cookie",
    "cred",
    "credential",
    "credentials",
    "creds",
    "jwt",
    "masterauth",
    "otp",
    "pass",
    "passcode",
    "passin",
    "passout",
    "passphrase",
    "passw",
    "passwd",
    "password",
    "passwords",
    "psk",
    "psw",
    "pw",
    "pwd",
    "requirepass",
    "secret",
    "secrets",
    "signature",
    "storepass",
    "token",
    "tokens",
];

/// Ends of parts that say the same, as in `PGPASSWORD`, `accesstoken` and `-HAuthorization`.
const SECRET_ENDS: [&str; 9] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "authorization",
    "cookie",
    "accesskey",
];

/// Names that are secrets if they have no other part.
const SECRET_ALONE: [&str; 1] = ["sig"];

/// What makes a `key` a secret one when it stands before it.
const KEYS: [&str; 9] =
    ["access", "account", "api", "auth", "encryption", "master", "private", "shared", "signing"];

/// A name that ends so tells where a secret is, or about it, and not the secret.
const ABOUT: [&str; 24] = [
    "dir",
    "endpoint",
    "expiration",
    "expires",
    "expiry",
    "fd",
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
    "stdin",
    "ttl",
    "type",
    "url",
    "uri",
];

/// Whether a flag, variable, header or field is called a secret.
pub(super) fn is_secret(name: &str) -> bool {
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
    parts.iter().any(is_secret)
        || parts.windows(2).any(is_key)
        || matches!(parts.as_slice(), [alone] if SECRET_ALONE.contains(&alone.as_str()))
}

/// Whether this is a header whose value has spaces.
pub(super) fn is_long_header(name: &str) -> bool {
    let parts = parts(name);
    let ends = ["authorization", "cookie"];
    parts.last().is_some_and(|last| ends.iter().any(|end| last.ends_with(end)))
}

/// How a header says what kind of secret follows.
pub(super) fn is_scheme(word: &str) -> bool {
    ["bearer", "basic", "digest", "negotiate"].iter().any(|it| word.eq_ignore_ascii_case(it))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart() {
        for name in ["PGPASSWORD", "dbPass", "--api-key", "x.psk", "sig", "-HCookie", "DB_PW"] {
            assert!(is_secret(name), "{name}");
        }
        for name in
            ["", "key", "bypass", "--token-file", "--password-stdin", "--sig-proxy", "compass"]
        {
            assert!(!is_secret(name), "{name}");
        }
    }
}
