//! Patterns for names of variables, for lists of names that somebody refuses.
//!
//! A list that refuses must not be passed by another spelling: `*` stands for any characters, `/`
//! included, which relaxed names may hold, and ASCII letters are compared without case, because
//! programs read `http_proxy` as they read `HTTP_PROXY`. The syntax is that of [`Glob`].

use crate::glob::{Glob, GlobError, Reading};

/// A pattern that was understood completely.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePattern(Glob);

impl NamePattern {
    /// Parses `pattern`; the module's documentation states what it matches.
    pub fn parse(pattern: &str) -> Result<Self, GlobError> {
        Glob::parse(pattern).map(Self)
    }

    /// Whether the pattern matches all of `name`.
    pub fn matches(&self, name: &str) -> bool {
        let reached = self.0.reached(name, Reading::Name);
        reached.and_then(|row| row.last().copied()).unwrap_or(false)
    }

    /// Whether the pattern could match a name that begins with `prefix`, whatever follows.
    pub fn may_match_after(&self, prefix: &str) -> bool {
        self.0.reached(prefix, Reading::Name).is_some()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(pattern: &str, name: &str, expected: bool) {
        let pattern = NamePattern::parse(pattern).unwrap();
        assert_eq!(pattern.matches(name), expected, "{pattern:?} on {name:?}");
    }

    /// EXEC-35
    #[test]
    fn a_star_matches_everything_in_a_name_exec_35() {
        check("LD_*", "LD_PRELOAD", true);
        check("LD_*", "LD_", true);
        check("LD_*", "LD_a/b", true);
        check("*", "a/b/c", true);
        check("A?B", "A/B", true);
        check("**_X", "a/b_X", true);
        check("LD_*", "XLD_", false);
    }

    /// EXEC-35
    #[test]
    fn case_does_not_count_exec_35() {
        check("*_PROXY", "http_proxy", true);
        check("*_proxy", "HTTP_PROXY", true);
        check("Path", "pATH", true);
        check("PATH", "MY_PATH", false);
    }

    #[test]
    fn a_prefix_may_go_on_to_a_name_that_matches() {
        let after = |pattern: &str, prefix: &str| {
            NamePattern::parse(pattern).unwrap().may_match_after(prefix)
        };
        for prefix in ["", "L", "ld_", "LD_PRE", "LD_a/"] {
            assert!(after("LD_*", prefix), "{prefix}");
        }
        assert!(!after("LD_*", "APP_"));
        assert!(!after("LD_*", "LDX"));
        assert!(after("*_PROXY", "ANYTHING"));
        assert!(after("LD_PRELOAD", "LD_"));
    }

    proptest! {
        /// Whatever a name begins with, a pattern that matches it may match after that.
        #[test]
        fn no_prefix_of_a_name_that_matches_is_missed(
            pattern in "[aB/*?]{1,6}", name in "[Ab/]{0,8}", at in 0usize..9,
        ) {
            if let Ok(pattern) = NamePattern::parse(&pattern)
                && pattern.matches(&name)
            {
                let prefix = name.get(..at).unwrap_or(&name);
                prop_assert!(pattern.may_match_after(prefix));
            }
        }
    }
}
