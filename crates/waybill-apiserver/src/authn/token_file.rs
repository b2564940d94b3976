//! The static token file: `token,user,uid,"group1,group2"`, one user per line.
//!
//! Read once at start. Only hashes of the tokens are kept, and they are found by hash, so the time of
//! a look-up says nothing about a token. Errors name lines, never what stands in them.

use std::{
    collections::HashMap,
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use waybill_core::secret::SecretBytes;

use super::{among_all, digest::Digest};
use crate::request::User;

/// Users by the hash of their token.
#[derive(Default)]
pub(crate) struct TokenFile(HashMap<Digest, Arc<User>>);

impl TokenFile {
    /// Reads the file at `path`.
    pub(crate) fn open(path: &Path) -> Result<Self, TokenFileError> {
        let bytes = fs::read(path)
            .map(SecretBytes::from)
            .map_err(|source| TokenFileError::Read { path: path.to_owned(), source })?;
        Self::parse(&bytes).map_err(|source| TokenFileError::Line { path: path.to_owned(), source })
    }

    /// Reads the content of a file. Blank lines and lines that start with `#` are skipped.
    pub(crate) fn parse(content: &SecretBytes) -> Result<Self, LineError> {
        let mut users = HashMap::new();
        for (index, line) in content.expose().split(|&byte| byte == b'\n').enumerate() {
            let at = |fault| LineError { line: index + 1, fault };
            let line = std::str::from_utf8(line).map_err(|_| at(LineFault::NotText))?.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (digest, user) = parse_line(line).map_err(at)?;
            if users.insert(digest, Arc::new(among_all(user))).is_some() {
                return Err(at(LineFault::Duplicate));
            }
        }
        Ok(Self(users))
    }

    /// The user who has `token`.
    pub(crate) fn find(&self, token: &str) -> Option<&Arc<User>> {
        self.0.get(&Digest::of(token.as_bytes()))
    }
}

/// Not even the hashes are shown: a weak token could be guessed from one.
impl fmt::Debug for TokenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenFile").field("users", &self.0.len()).finish()
    }
}

/// Why the token file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TokenFileError {
    #[error("cannot use the token file {}", path.display())]
    Line {
        path: PathBuf,
        #[source]
        source: LineError,
    },
    #[error("cannot read the token file {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// A line that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {fault}")]
pub(crate) struct LineError {
    line: usize,
    fault: LineFault,
}

/// What is wrong with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LineFault {
    #[error("must have at least 3 columns (token, user name, user uid), found {0}")]
    Columns(usize),
    #[error("the token occurs on an earlier line too")]
    Duplicate,
    #[error("the token is empty")]
    NoToken,
    #[error("the user name is empty")]
    NoUser,
    #[error("not UTF-8")]
    NotText,
    #[error("a quote is not closed or stands in the middle of a column")]
    Quote,
}

fn parse_line(line: &str) -> Result<(Digest, User), LineFault> {
    let columns = columns(line)?;
    let [token, name, uid, rest @ ..] = columns.as_slice() else {
        return Err(LineFault::Columns(columns.len()));
    };
    if token.is_empty() {
        return Err(LineFault::NoToken);
    }
    if name.is_empty() {
        return Err(LineFault::NoUser);
    }
    let groups = rest.first().map(String::as_str).unwrap_or_default();
    let groups = groups.split(',').map(str::trim).filter(|group| !group.is_empty());
    let user = User {
        name: name.clone(),
        uid: uid.clone(),
        groups: groups.map(str::to_owned).collect(),
        ..User::default()
    };
    Ok((Digest::of(token.as_bytes()), user))
}

/// Splits one CSV record; a quoted column may hold commas, and a doubled quote stands for one.
fn columns(line: &str) -> Result<Vec<String>, LineFault> {
    let mut columns = Vec::new();
    let mut rest = line;
    loop {
        let (column, after) = match rest.trim_start().strip_prefix('"') {
            Some(quoted) => quoted_column(quoted)?,
            None => plain_column(rest)?,
        };
        columns.push(column);
        match after.trim_start().strip_prefix(',') {
            Some(next) => rest = next,
            None if after.trim().is_empty() => return Ok(columns),
            None => return Err(LineFault::Quote),
        }
    }
}

fn plain_column(text: &str) -> Result<(String, &str), LineFault> {
    let (column, after) = text.split_at(text.find(',').unwrap_or(text.len()));
    if column.contains('"') {
        return Err(LineFault::Quote);
    }
    Ok((column.trim().to_owned(), after))
}

fn quoted_column(text: &str) -> Result<(String, &str), LineFault> {
    let mut column = String::new();
    let mut rest = text;
    loop {
        let (part, after) = rest.split_once('"').ok_or(LineFault::Quote)?;
        column.push_str(part);
        match after.strip_prefix('"') {
            Some(more) => {
                column.push('"');
                rest = more;
            }
            None => return Ok((column, after)),
        }
    }
}

#[cfg(test)]
mod tests {
    use waybill_core::chain::Chain;

    use super::*;

    fn parse(text: &str) -> Result<TokenFile, LineError> {
        TokenFile::parse(&SecretBytes::copy_of(text.as_bytes()))
    }

    #[track_caller]
    fn check(line: &str, token: &str, name: &str, uid: &str, groups: &[&str]) {
        let file = parse(line).unwrap();
        let user = file.find(token).unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), (name, uid));
        assert_eq!(user.groups, [groups, &["system:authenticated"]].concat());
    }

    #[track_caller]
    fn check_refused(text: &str, line: usize, fault: LineFault) {
        assert_eq!(parse(text).unwrap_err(), LineError { line, fault });
    }

    #[test]
    fn users_are_found_by_their_token() {
        check("t,alice,1", "t", "alice", "1", &[]);
        check("t,alice,1,dev", "t", "alice", "1", &["dev"]);
        check("t,alice,1,\"dev,ops\"\r\n", "t", "alice", "1", &["dev", "ops"]);
        check("# who\n\nt , alice, 1, \"dev, ops\"", "t", "alice", "1", &["dev", "ops"]);
        check("\"a\"\"b,c\",alice,", "a\"b,c", "alice", "", &[]);
        let file = parse("t,alice,1\nu,bob,2").unwrap();
        assert!(file.find("").is_none());
        assert!(file.find("T").is_none());
        assert_eq!(file.find("u").unwrap().name, "bob");
    }

    #[test]
    fn bad_lines_are_named_by_number() {
        check_refused("t,alice", 1, LineFault::Columns(2));
        check_refused("\nt", 2, LineFault::Columns(1));
        check_refused(",alice,1", 1, LineFault::NoToken);
        check_refused("t,,1", 1, LineFault::NoUser);
        check_refused("t,a,1\nt,b,2", 2, LineFault::Duplicate);
        check_refused("\"t,a,1", 1, LineFault::Quote);
        check_refused("\"t\"x,a,1", 1, LineFault::Quote);
        check_refused("t\"x,a,1", 1, LineFault::Quote);
    }

    #[test]
    fn no_token_is_printed() {
        const CANARY: &str = "canary-5f1e";
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens.csv");
        for rest in ["", ",,", ",a\"", "\"", ",a,1\ncanary-5f1e,b,2"] {
            fs::write(&path, format!("{CANARY}{rest}")).unwrap();
            let error = TokenFile::open(&path).unwrap_err();
            let text = format!("{} {error:?}", Chain(&error));
            assert!(text.contains("tokens.csv") && !text.contains(CANARY), "{text}");
        }
        let file = parse(&format!("{CANARY},a,1")).unwrap();
        assert_eq!(format!("{file:?}"), "TokenFile { users: 1 }");
    }
}
