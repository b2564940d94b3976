//! Words that mean something else in another directory.
//!
//! A plugin with such a word may answer otherwise there, so what it said here must not serve there. A word too many costs a run
//! of the plugin in each directory that has a file of that name; one too few would give somebody another identity.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// Variables whose values are names of people, programs and languages, though there may be files of the same name.
const NO_PATHS: &[&str] = &[
    "EDITOR", "HOSTNAME", "LANG", "LANGUAGE", "LOGNAME", "NAME", "PAGER", "USER", "USERNAME",
    "VISUAL",
];

/// Between the words of lists, assignments and commands.
const SEPARATORS: &[u8] = b" \t\n:,;=|&<>()'\"`${}[]";

/// Whether a variable may hold paths.
pub(super) fn may_hold_paths(name: &OsStr) -> bool {
    !name.as_bytes().starts_with(b"LC_") && !NO_PATHS.iter().any(|&known| name == known)
}

/// Whether `text`, or a word in it, is relative to the working directory. `exists` says whether there is something of a name
/// in that directory.
pub(super) fn is_relative(text: &OsStr, exists: &dyn Fn(&Path) -> bool) -> bool {
    let bytes = text.as_bytes();
    let words = bytes.split(|byte| SEPARATORS.contains(byte));
    // Names may have any of the separators in them.
    let whole = [bytes, after_equals_sign(bytes)];
    words.chain(whole).any(|word| forms(word).any(|form| is_relative_path(form, exists)))
}

fn after_equals_sign(bytes: &[u8]) -> &[u8] {
    bytes.splitn(2, |&byte| byte == b'=').nth(1).unwrap_or_default()
}

/// A word as it is; without the sign of "the contents of" and the scheme of files; and without the flag that it may follow.
fn forms(word: &[u8]) -> impl Iterator<Item = &[u8]> {
    let named = word.strip_prefix(b"@").unwrap_or(word);
    let named = named.strip_prefix(b"//").unwrap_or(named);
    let behind_flag = match word {
        [b'-', _, rest @ ..] => rest,
        _ => b"",
    };
    [word, named, behind_flag].into_iter()
}

fn is_relative_path(word: &[u8], exists: &dyn Fn(&Path) -> bool) -> bool {
    match word {
        [] | [b'/' | b'~', ..] => false,
        b"." | b".." | b"PWD" | b"OLDPWD" | b"pwd" => true,
        [b'.', b'/', ..] | [b'.', b'.', b'/', ..] => true,
        word => exists(&PathBuf::from(OsStr::from_bytes(word))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The directory has `key.json`, `conf/aws`, `prod` and `a=b`.
    #[track_caller]
    fn check(text: &str, expected: bool) {
        let files = ["key.json", "conf/aws", "prod", "a=b"];
        let exists = |path: &Path| files.iter().any(|file| path == Path::new(file));
        assert_eq!(is_relative(text.as_ref(), &exists), expected, "{text:?}");
    }

    #[test]
    fn what_points_to_the_directory_is_relative_whether_it_is_there_or_not() {
        for text in [
            ".",
            "..",
            "./token",
            "../token",
            "--token-file=./token",
            "-f./token",
            "@../token",
            "/etc/a:./b",
            "cat ./token",
            "sh -c 'cat \"$PWD\"/x'",
            "${PWD}",
            "$(pwd)/x",
            "file://./key",
            "a,./b",
        ] {
            check(text, true);
        }
    }

    #[test]
    fn names_are_relative_where_there_is_something_of_that_name() {
        for text in [
            "key.json",
            "conf/aws",
            "--key=key.json",
            "--key-file=conf/aws",
            "-fkey.json",
            "@key.json",
            "/etc/aws:conf/aws",
            "cat key.json",
            "a=b",
            "--x=a=b",
            "file://key.json",
            "prod",
        ] {
            check(text, true);
        }
        for text in ["other.json", "conf", "--key=other.json", "-fother", "production", "--prod-x"]
        {
            check(text, false);
        }
    }

    #[test]
    fn what_means_the_same_everywhere_is_not() {
        for text in [
            "",
            "/",
            "/key.json",
            "/etc/../key.json",
            "~/key.json",
            "--key=/a/key.json",
            "https://example.com/x",
            "eks",
            "get-token",
            "-",
            "--",
            "-v",
            "1.5",
            "...",
            ".hidden",
            "a..b",
            "PWDX",
        ] {
            check(text, false);
        }
    }

    #[test]
    fn variables_that_name_people_and_programs_hold_no_paths() {
        for (name, expected) in [
            ("USER", false),
            ("LC_ALL", false),
            ("EDITOR", false),
            ("AWS_CONFIG_FILE", true),
            ("USERS", true),
        ] {
            assert_eq!(may_hold_paths(name.as_ref()), expected, "{name}");
        }
    }
}
