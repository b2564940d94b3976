//! Who may use a ProviderClass, and for which keys.
//!
//! An administrator writes both lists as parameters of the class. The API server checks them at
//! admission, the node agent before its call and every driver before it touches its backend (OP-35).
//! They share this module so that none is more generous than another; drivers see no other crate of
//! ours than this one. No fault in a list is repaired: a list that is not understood allows nothing,
//! because it never becomes a value.

use alloc::{boxed::Box, vec::Vec};
use core::fmt;

use crate::{
    glob::{Glob, GlobError},
    id::is_dns_label,
};

/// Parameter of a class that lists the namespaces whose pods may use it (CSI-16).
pub const ALLOWED_NAMESPACES: &str = "allowedNamespaces";

/// Parameter of a class that lists patterns for the keys it serves (CSI-16).
pub const ALLOWED_FIELDS: &str = "allowedFields";

/// Longest key that a list of patterns can allow; longer than any backend's own limit, and than a
/// path of Linux. It bounds the work that a tenant's key can cause.
pub const KEY_BYTES: usize = 4096;

/// The namespaces whose pods may use a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedNamespaces(Namespaces);

impl AllowedNamespaces {
    /// Finds the list among all parameters of a class, by their names and values.
    pub fn of<'a>(
        parameters: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, AllowListError> {
        Self::parse(find(parameters, ALLOWED_NAMESPACES)?)
    }

    /// Parses the parameter [`ALLOWED_NAMESPACES`]: DNS-1123 labels between commas, or `*` alone for
    /// every namespace. Absent means every namespace too, present and empty means none (OP-32).
    pub fn parse(parameter: Option<&str>) -> Result<Self, AllowListError> {
        let Some(text) = parameter else { return Ok(Self(Namespaces::Every)) };
        let items = items(text)?;
        if items == ["*"] {
            return Ok(Self(Namespaces::Every));
        }
        for (item, &namespace) in (1..).zip(&items) {
            if namespace == "*" {
                return Err(AllowListError::Star { item });
            }
            if !is_dns_label(namespace) {
                return Err(AllowListError::Namespace { item });
            }
        }
        Ok(Self(Namespaces::Listed(items.into_iter().map(Box::from).collect())))
    }

    /// Refuses `namespace` unless its pods may use the class.
    pub fn check(&self, namespace: &str) -> Result<(), NamespaceDenied> {
        if self.allows(namespace) { Ok(()) } else { Err(NamespaceDenied) }
    }

    /// Whether pods of `namespace` may use the class.
    pub fn allows(&self, namespace: &str) -> bool {
        match &self.0 {
            Namespaces::Every => true,
            Namespaces::Listed(listed) => listed.iter().any(|item| **item == *namespace),
        }
    }
}

/// The keys that a class serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedFields(Fields);

impl AllowedFields {
    /// Finds the list among all parameters of a class, by their names and values.
    pub fn of<'a>(
        parameters: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, AllowListError> {
        Self::parse(find(parameters, ALLOWED_FIELDS)?)
    }

    /// Parses the parameter [`ALLOWED_FIELDS`]: patterns of [`Glob`] between commas. Absent means
    /// every key, present and empty means none (OP-32).
    ///
    /// A pattern that could match no plain key, such as `app/` or `app/../*`, is an error (see
    /// [`AllowedFields::allows`]).
    pub fn parse(parameter: Option<&str>) -> Result<Self, AllowListError> {
        let Some(text) = parameter else { return Ok(Self(Fields::Every)) };
        let mut globs = Vec::new();
        for (item, pattern) in (1..).zip(items(text)?) {
            let glob =
                Glob::parse(pattern).map_err(|source| AllowListError::Pattern { item, source })?;
            if !is_plain(pattern) {
                return Err(AllowListError::NotPlain { item });
            }
            globs.push(glob);
        }
        Ok(Self(Fields::Matching(globs)))
    }

    /// Refuses `key` unless the class serves it.
    pub fn check(&self, key: &str) -> Result<(), KeyDenied> {
        match &self.0 {
            Fields::Matching(globs) if !self.allows(key) => {
                Err(KeyDenied { key: key.into(), patterns: globs.clone() })
            }
            Fields::Matching(_) | Fields::Every => Ok(()),
        }
    }

    /// Whether the class serves `key`.
    ///
    /// A list matches the text of the key, but a backend may normalise the key first and end at
    /// another path: `app/../db` matches `app/**` and names `db`. So a list allows only plain keys,
    /// of which every reader makes the same path:
    ///
    /// - no segment is empty, `.` or `..`; one `/` may stand in front;
    /// - no `\` and no control character, which URL parsers turn into `/` or drop;
    /// - no `.`, `/` or `\` in percent-encoding;
    /// - at most [`KEY_BYTES`] bytes.
    ///
    /// A key with `/` in front needs a pattern that starts with `/` or `**`: otherwise `*/db` would
    /// allow `/db`, which many backends read as `db`. Without a list every key is allowed, plain or
    /// not.
    pub fn allows(&self, key: &str) -> bool {
        let rooted = key.starts_with('/');
        let matches = |glob: &Glob| {
            let pattern = glob.as_str();
            (!rooted || pattern.starts_with('/') || pattern.starts_with("**")) && glob.matches(key)
        };
        match &self.0 {
            Fields::Every => true,
            Fields::Matching(globs) => is_plain(key) && globs.iter().any(matches),
        }
    }
}

/// The pod's namespace is not on the list (CSI-13).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Unauthorized: namespace not in allowedNamespaces")]
pub struct NamespaceDenied;

/// The key matches none of the patterns (CSI-13, CSI-45).
///
/// The text shows the patterns as the administrator wrote them; in the key it escapes quotes and what
/// could forge a log line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyDenied {
    key: Box<str>,
    patterns: Vec<Glob>,
}

impl fmt::Display for KeyDenied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key '{}' not in allowedFields pattern '", self.key.escape_debug())?;
        for (i, pattern) in self.patterns.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(f, "{comma}{pattern}")?;
        }
        f.write_str("'")
    }
}

impl core::error::Error for KeyDenied {}

/// Why a list cannot be used. Items are counted from one, as people count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AllowListError {
    /// Nothing stands between two commas, or before the first or after the last.
    #[error("item {item} is empty")]
    EmptyItem {
        /// Which item.
        item: usize,
    },
    /// Not a name that a namespace can have.
    #[error(
        "item {item} is not the name of a namespace: at most 63 lower case letters, digits and \
         '-', with a letter or digit at both ends"
    )]
    Namespace {
        /// Which item.
        item: usize,
    },
    /// `*` among other namespaces.
    #[error("item {item}: '*' allows every namespace and must stand alone")]
    Star {
        /// Which item.
        item: usize,
    },
    /// Not a pattern.
    #[error("item {item} is not a pattern")]
    Pattern {
        /// Which item.
        item: usize,
        /// What is wrong with it.
        source: GlobError,
    },
    /// A pattern that only keys could match that are never allowed.
    #[error(
        "item {item} can match no key: empty, '.' and '..' segments and their percent-encodings \
         are never allowed"
    )]
    NotPlain {
        /// Which item.
        item: usize,
    },
    /// A parameter has almost the name of the list.
    #[error("another parameter has almost this name, and nobody reads it: case and spelling count")]
    Misspelt,
}

/// Whether somebody wrote `found` who meant `known`: in another case, in the singular, or with other signs
/// between its words. A class that means to restrict, and does not, must not count as one that is free.
pub fn is_misspelt(found: &str, known: &str) -> bool {
    let letters = |text: &str| -> Vec<u8> {
        let text = text.trim().trim_end_matches(['s', 'S']);
        let letters = text.bytes().filter(|byte| !b"-_. ".contains(byte));
        letters.map(|byte| byte.to_ascii_lowercase()).collect()
    };
    found != known && letters(found) == letters(known)
}

/// The value of the parameter `known`.
fn find<'a>(
    parameters: impl IntoIterator<Item = (&'a str, &'a str)>,
    known: &str,
) -> Result<Option<&'a str>, AllowListError> {
    let mut value = None;
    for (name, text) in parameters {
        if is_misspelt(name, known) {
            return Err(AllowListError::Misspelt);
        }
        if name == known {
            value = Some(text);
        }
    }
    Ok(value)
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Namespaces {
    Every,
    Listed(Vec<Box<str>>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Fields {
    Every,
    Matching(Vec<Glob>),
}

/// The trimmed items of a list; an empty text has none.
fn items(text: &str) -> Result<Vec<&str>, AllowListError> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let items: Vec<_> = text.split(',').map(str::trim).collect();
    match items.iter().position(|item| item.is_empty()) {
        Some(at) => Err(AllowListError::EmptyItem { item: at + 1 }),
        None => Ok(items),
    }
}

/// Whether every reader makes the same path of `key`; [`AllowedFields::allows`] states the rule.
fn is_plain(key: &str) -> bool {
    let path = key.strip_prefix('/').unwrap_or(key);
    key.len() <= KEY_BYTES
        && !key.contains(|c: char| c == '\\' || c.is_control())
        && !key.as_bytes().windows(3).any(is_encoded_separator)
        && !path.split('/').any(|segment| matches!(segment, "" | "." | ".."))
}

fn is_encoded_separator(window: &[u8]) -> bool {
    [b"%2e", b"%2f", b"%5c"].iter().any(|encoded| window.eq_ignore_ascii_case(*encoded))
}

#[cfg(test)]
mod tests {
    use std::{
        string::{String, ToString},
        vec,
    };

    use proptest::prelude::*;

    use super::*;
    use crate::chain::Chain;

    #[track_caller]
    fn namespaces(parameter: Option<&str>, allowed: &[&str], denied: &[&str]) {
        let list = AllowedNamespaces::parse(parameter).unwrap();
        for namespace in allowed {
            assert_eq!(list.check(namespace), Ok(()), "{parameter:?} {namespace:?}");
        }
        for namespace in denied {
            assert_eq!(list.check(namespace), Err(NamespaceDenied), "{parameter:?} {namespace:?}");
        }
    }

    #[track_caller]
    fn fields(parameter: Option<&str>, allowed: &[&str], denied: &[&str]) {
        let list = AllowedFields::parse(parameter).unwrap();
        for key in allowed {
            assert!(list.allows(key) && list.check(key).is_ok(), "{parameter:?} {key:?}");
        }
        for key in denied {
            assert!(!list.allows(key) && list.check(key).is_err(), "{parameter:?} {key:?}");
        }
    }

    #[track_caller]
    fn bad_namespaces(parameter: &str, expected: AllowListError) {
        assert_eq!(AllowedNamespaces::parse(Some(parameter)), Err(expected), "{parameter:?}");
    }

    #[track_caller]
    fn bad_fields(parameter: &str, expected: AllowListError) {
        assert_eq!(AllowedFields::parse(Some(parameter)), Err(expected), "{parameter:?}");
    }

    #[test]
    fn absent_lists_allow_all_and_empty_lists_nothing_op_32() {
        namespaces(None, &["default", "prod"], &[]);
        namespaces(Some("*"), &["default", "prod"], &[]);
        namespaces(Some(" * "), &["default", "prod"], &[]);
        namespaces(Some(""), &[], &["default", "", "*"]);
        namespaces(Some("  "), &[], &["default", "", "*"]);
        fields(None, &["a", "a/b", "", "../a"], &[]);
        fields(Some(""), &[], &["a", "a/b", "", "*"]);
        fields(Some("\t"), &[], &["a", "a/b", "", "*"]);
    }

    /// CSI-16
    #[test]
    fn a_list_under_almost_its_name_allows_nothing_csi_16() {
        for name in
            ["allowedfields", "AllowedFields", "allowed-fields", "allowedField", "allowedFields "]
        {
            let found = AllowedFields::of([("addr", "x"), (name, "app/*")]);
            assert_eq!(found, Err(AllowListError::Misspelt), "{name:?}");
            // Beside the right one, too: who knows which of them is meant.
            let found = AllowedFields::of([(name, "app/*"), (ALLOWED_FIELDS, "**")]);
            assert_eq!(found, Err(AllowListError::Misspelt), "{name:?}");
        }
        for name in
            ["allowednamespaces", "ALLOWEDNAMESPACES", "allowed_namespaces", "allowedNamespace"]
        {
            assert_eq!(
                AllowedNamespaces::of([(name, "a")]),
                Err(AllowListError::Misspelt),
                "{name:?}"
            );
            assert!(AllowedFields::of([(name, "a")]).is_ok(), "{name:?}");
        }
        let list =
            AllowedNamespaces::of([("allowed", "x"), ("fields", "y"), (ALLOWED_NAMESPACES, "a")]);
        assert!(list.as_ref().unwrap().allows("a") && !list.unwrap().allows("b"));
        assert!(AllowedNamespaces::of([]).unwrap().allows("b"));
    }

    /// CSI-16
    #[test]
    fn namespaces_are_compared_whole_csi_16() {
        namespaces(
            Some("default, production"),
            &["default", "production"],
            &["prod", "production2", "Default", " default", "", "*", "default,production"],
        );
        let longest = "n".repeat(63);
        namespaces(Some(&longest), &[&longest], &[]);
    }

    /// CSI-16
    #[test]
    fn bad_lists_of_namespaces_are_refused_csi_16() {
        bad_namespaces("a,,b", AllowListError::EmptyItem { item: 2 });
        bad_namespaces("a,", AllowListError::EmptyItem { item: 2 });
        bad_namespaces(",", AllowListError::EmptyItem { item: 1 });
        bad_namespaces("a,*", AllowListError::Star { item: 2 });
        bad_namespaces("*,*", AllowListError::Star { item: 1 });
        for bad in ["A", "a_b", "-a", "a-", "a.b", "prod-*", "a b", "é", &"n".repeat(64)] {
            bad_namespaces(&["ok,", bad].concat(), AllowListError::Namespace { item: 2 });
        }
    }

    /// CSI-16
    #[test]
    fn keys_must_match_one_of_the_patterns_csi_16() {
        fields(
            Some("secret/data/*, config/app/**"),
            &["secret/data/db", "config/app/a/b"],
            &["secret/data/app/db", "secret/data", "config/app", "", "xsecret/data/db"],
        );
        fields(Some("/prod/*"), &["/prod/db"], &["prod/db", "//prod/db", "/prod"]);
    }

    /// CSI-16
    #[test]
    fn bad_lists_of_patterns_are_refused_csi_16() {
        bad_fields("a,,b", AllowListError::EmptyItem { item: 2 });
        bad_fields(",a", AllowListError::EmptyItem { item: 1 });
        let source = GlobError::Special { at: 2, found: '{' };
        bad_fields("ok,a/{b", AllowListError::Pattern { item: 2, source });
        for bad in ["a/", "a//b", "//a", "/", "..", "a/../b", "./a", "a/%2E", "**/", "%2fa"] {
            bad_fields(bad, AllowListError::NotPlain { item: 1 });
        }
        let error = AllowedFields::parse(Some("x, [ab]")).unwrap_err();
        assert_eq!(
            Chain(&error).to_string(),
            "item 2 is not a pattern: '[' at offset 0 is not supported, only '*', '**' and '?' are \
             special"
        );
    }

    /// A backend that normalises paths must not end outside the list.
    #[test]
    fn keys_that_a_backend_could_read_as_another_path_match_no_list() {
        let hostile = [
            "app/../db",
            "app/..",
            "../app",
            "..",
            ".",
            "./app/x",
            "app/./x",
            "app//x",
            "app/",
            "//app",
            "/",
            "app/%2e%2e/db",
            "app/.%2E/db",
            "app%2f..%2fdb",
            "app/%2F",
            "app\\..\\db",
            "app/%5Cdb",
            "app/.\t./db",
            "app/.\n./db",
            "app\0",
            "app/\u{85}",
        ];
        fields(Some("**"), &["app/x", "...", "a/...", ".env", "a/..b", "a%20b"], &hostile);
        fields(Some("app/**"), &["app/x"], &hostile);
        fields(None, &hostile, &[]);
    }

    #[test]
    fn a_slash_in_front_is_not_an_empty_segment_for_a_star() {
        fields(Some("*/db"), &["app/db"], &["/db"]);
        fields(Some("**/db"), &["app/db", "/db"], &["db"]);
        fields(Some("/*"), &["/db"], &["db", "/"]);
    }

    #[test]
    fn overlong_keys_match_no_list() {
        let (longest, longer) = ("k".repeat(4096), "k".repeat(4097));
        fields(Some("**"), &[&longest], &[&longer]);
    }

    /// CSI-13, CSI-45
    #[test]
    fn denials_say_what_the_requirements_say_csi_13_csi_45() {
        assert_eq!(NamespaceDenied.to_string(), "Unauthorized: namespace not in allowedNamespaces");
        let text = |list: &str, key: &str| {
            AllowedFields::parse(Some(list)).unwrap().check(key).unwrap_err().to_string()
        };
        assert_eq!(
            text("secret/data/app/*", "secret/data/db-creds"),
            "Key 'secret/data/db-creds' not in allowedFields pattern 'secret/data/app/*'"
        );
        assert_eq!(text("b/*, a/?", "x"), "Key 'x' not in allowedFields pattern 'b/*,a/?'");
        assert_eq!(text("", "x"), "Key 'x' not in allowedFields pattern ''");
        assert_eq!(
            text("a", "x'\n\u{202e}"),
            "Key 'x\\'\\n\\u{202e}' not in allowedFields pattern 'a'"
        );
    }

    /// What a lenient backend makes of a key: dots resolved, empty segments dropped.
    fn normalised(key: &str) -> String {
        let mut path = vec![];
        for segment in key.split('/') {
            match segment {
                "" | "." => {}
                ".." => drop(path.pop()),
                _ => path.push(segment),
            }
        }
        path.join("/")
    }

    proptest! {
        #[test]
        fn a_key_that_is_allowed_stays_below_the_literal_start(key in "(app|[./a%2eE\\\\]){0,6}") {
            let list = AllowedFields::parse(Some("app/**")).unwrap();
            if list.allows(&key) {
                prop_assert!(normalised(&key).starts_with("app/"), "{}", key);
            }
        }

        #[test]
        fn no_text_makes_it_panic(parameter in any::<String>(), text in any::<String>()) {
            if let Ok(list) = AllowedNamespaces::parse(Some(&parameter)) {
                let _ = list.check(&text);
            }
            if let Ok(list) = AllowedFields::parse(Some(&parameter)) {
                let _ = list.check(&text).map_err(|denied| denied.to_string());
            }
        }
    }
}
