//! Rewrites what dotenv readers accept into the grammar of [`super::file`].
//!
//! `export A=1`, `A = some text # comment`, `A="two\nlines"` and Windows line endings all have one
//! meaning, so they become `A='1'` and so on; comments and blank lines stay. Where readers disagree,
//! or where the grammar cannot say it (a single quote inside a value), the rewrite refuses and says
//! why: it never guesses, and its errors never quote a value.

use alloc::vec::Vec;

use memchr::{memchr, memchr_iter};

use super::{
    file::{EnvFile, EnvFileFault, Position},
    limits::{FILE_BYTES, FILE_VALUE_BYTES},
    name::NameRules,
};
use crate::secret::SecretBytes;

/// Rewrites `text`, or returns every line that cannot be rewritten.
///
/// What comes back parses as an [`EnvFile`]; a file that already does keeps its variables.
pub fn rewrite(text: &[u8], rules: NameRules) -> Result<SecretBytes, Vec<DotenvError>> {
    let too_long = || DotenvError {
        fault: DotenvFault::File(EnvFileFault::FileTooLong),
        position: Position::of(text, FILE_BYTES.min(text.len())),
        opened_line: None,
    };
    if text.len() > FILE_BYTES {
        return Err([too_long()].into());
    }
    let mut rewriter = Rewriter::new(text, rules);
    let mut errors = Vec::new();
    while rewriter.at < text.len() {
        if let Err((fault, at)) = rewriter.line() {
            let position = Position::of(text, at);
            let opened_line = rewriter
                .opened
                .map(|opened| Position::of(text, opened).line())
                .filter(|&line| line != position.line());
            errors.push(DotenvError { fault, position, opened_line });
            rewriter.skip_line(at);
        }
    }
    if rewriter.out.len() > FILE_BYTES {
        errors.push(too_long());
    }
    if errors.is_empty() { Ok(SecretBytes::from(rewriter.out)) } else { Err(errors) }
}

/// A line that cannot be rewritten, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{position}: {fault}")]
pub struct DotenvError {
    fault: DotenvFault,
    position: Position,
    opened_line: Option<usize>,
}

impl DotenvError {
    /// Why it cannot be rewritten.
    pub fn fault(&self) -> DotenvFault {
        self.fault
    }

    /// Where.
    pub fn position(&self) -> Position {
        self.position
    }

    /// For a fault in or behind a value of several lines: the line where that value began.
    pub fn opened_line(&self) -> Option<usize> {
        self.opened_line
    }
}

/// The reasons not to rewrite a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DotenvFault {
    /// A backquote, which runs a command in a shell.
    #[error("a shell would run what stands between backquotes")]
    Backquote,
    /// A backslash in an unquoted value.
    #[error("readers disagree on a backslash outside quotes")]
    Backslash,
    /// A carriage return that is not the end of a line.
    #[error("readers disagree on a carriage return inside a value")]
    CarriageReturn,
    /// An escape that has no common meaning.
    #[error("readers disagree on this escape")]
    Escape,
    /// `$`, which refers to another variable in most readers.
    #[error("this value refers to another variable, which env files cannot do")]
    Expansion,
    /// A fault that is one in the target grammar too.
    #[error(transparent)]
    File(EnvFileFault),
    /// `#` directly after text in an unquoted value.
    #[error("readers disagree whether a # inside an unquoted value starts a comment")]
    Hash,
    /// A quote in the middle of an unquoted value.
    #[error("readers disagree on quotes inside an unquoted value")]
    QuoteInside,
    /// A value with a single quote in it.
    #[error("an env file cannot hold a value that contains a single quote")]
    SingleQuote,
}

impl DotenvFault {
    /// A stable word for the fault, used in JSON output.
    pub fn code(self) -> &'static str {
        match self {
            Self::Backquote => "backquote",
            Self::Backslash => "backslash",
            Self::CarriageReturn => "carriage-return-in-value",
            Self::Escape => "escape",
            Self::Expansion => "expansion",
            Self::File(fault) => fault.code(),
            Self::Hash => "hash",
            Self::QuoteInside => "quote-inside",
            Self::SingleQuote => "single-quote",
        }
    }
}

/// A fault and the offset of the byte that shows it.
type Refusal = (DotenvFault, usize);

struct Rewriter<'a> {
    text: &'a [u8],
    at: usize,
    rules: NameRules,
    out: Vec<u8>,
    /// Where the value of the current line began.
    opened: Option<usize>,
}

impl<'a> Rewriter<'a> {
    fn new(text: &'a [u8], rules: NameRules) -> Self {
        let bom: &[u8] = b"\xef\xbb\xbf";
        let at = if text.starts_with(bom) { bom.len() } else { 0 };
        // Each line grows by two quotes, a space and a line break at most, so `out` never moves.
        let lines = memchr_iter(b'\n', text).count() + 1;
        Self { text, at, rules, out: Vec::with_capacity(text.len() + 4 * lines), opened: None }
    }

    /// Rewrites one line, or one assignment of several.
    fn line(&mut self) -> Result<(), Refusal> {
        self.opened = None;
        self.skip_blanks();
        match self.peek() {
            None => Ok(()),
            Some(b'\n' | b'\r' | b'#') => {
                self.end_of_line()?;
                self.out.push(b'\n');
                Ok(())
            }
            Some(_) => self.assignment(),
        }
    }

    fn assignment(&mut self) -> Result<(), Refusal> {
        let kept = self.out.len();
        let result = self.name().and_then(|()| self.value());
        if result.is_err() {
            self.out.truncate(kept);
        }
        result
    }

    /// Reads `[export] NAME =` and writes `NAME=`.
    fn name(&mut self) -> Result<(), Refusal> {
        if let Some(after) = self.rest().strip_prefix(b"export")
            && let Some(b' ' | b'\t') = after.first()
        {
            self.at += b"export".len();
            self.skip_blanks();
        }
        let start = self.at;
        let line = self.rest_of_line();
        let Some(equals) = memchr(b'=', line) else {
            return Err((DotenvFault::File(EnvFileFault::MissingEquals), start));
        };
        let name = line.get(..equals).unwrap_or_default().trim_ascii_end();
        let written = self.out.len();
        self.out.extend_from_slice(name);
        self.out.push(b'=');
        self.out.extend_from_slice(b"''");
        let example = self.out.get(written..).unwrap_or_default();
        if let Err(error) = EnvFile::parse(example, self.rules) {
            return Err((DotenvFault::File(error.fault()), start + error.position().offset()));
        }
        self.out.truncate(self.out.len() - 2);
        self.at = start + equals + 1;
        self.skip_blanks();
        Ok(())
    }

    /// Reads a value in any form, with the rest of its line, and writes it quoted.
    fn value(&mut self) -> Result<(), Refusal> {
        self.out.push(b'\'');
        let (opened, start) = (self.at, self.out.len());
        self.opened = Some(opened);
        match self.peek() {
            Some(b'\'') => self.single_quoted()?,
            Some(b'"') => self.double_quoted()?,
            _ => self.unquoted()?,
        }
        let length = self.out.len() - start;
        if length > FILE_VALUE_BYTES {
            return Err((DotenvFault::File(EnvFileFault::ValueTooLong { length }), opened));
        }
        self.out.push(b'\'');
        self.skip_blanks();
        match self.peek() {
            None | Some(b'\n' | b'\r') => {}
            Some(b'#') if self.follows_blank(self.at) => self.out.push(b' '),
            Some(b'#') => {
                return Err((DotenvFault::File(EnvFileFault::CommentNeedsSpace), self.at));
            }
            Some(_) => return Err((DotenvFault::File(EnvFileFault::TextAfterValue), self.at)),
        }
        self.end_of_line()?;
        self.out.push(b'\n');
        Ok(())
    }

    fn single_quoted(&mut self) -> Result<(), Refusal> {
        let quote = self.at;
        let inside = self.text.get(quote + 1..).unwrap_or_default();
        let Some(length) = memchr(b'\'', inside) else {
            return Err((DotenvFault::File(EnvFileFault::Unterminated), quote));
        };
        for (at, &byte) in inside.iter().take(length).enumerate() {
            self.push(byte, quote + 1 + at)?;
        }
        self.at = quote + length + 2;
        Ok(())
    }

    fn double_quoted(&mut self) -> Result<(), Refusal> {
        let quote = self.at;
        self.at += 1;
        loop {
            let at = self.at;
            let Some(byte) = self.peek() else {
                return Err((DotenvFault::File(EnvFileFault::Unterminated), quote));
            };
            self.at += 1;
            match byte {
                b'"' => return Ok(()),
                b'$' => return Err((DotenvFault::Expansion, at)),
                b'`' => return Err((DotenvFault::Backquote, at)),
                b'\r' => return Err((DotenvFault::CarriageReturn, at)),
                b'\\' => {
                    let escaped = match self.peek() {
                        Some(b'n') => b'\n',
                        Some(b'r') => b'\r',
                        Some(b't') => b'\t',
                        Some(byte @ (b'"' | b'\\' | b'$' | b'`' | b'\'')) => byte,
                        _ => return Err((DotenvFault::Escape, at)),
                    };
                    self.at += 1;
                    self.push(escaped, at)?;
                }
                _ => self.push(byte, at)?,
            }
        }
    }

    /// Everything up to a comment or the end of the line, less the white space at its end.
    fn unquoted(&mut self) -> Result<(), Refusal> {
        let start = self.at;
        let line = self.rest_of_line();
        let comment = memchr_iter(b'#', line).find(|at| self.follows_blank(start + at));
        let value = line.get(..comment.unwrap_or(line.len())).unwrap_or_default().trim_ascii_end();
        for (at, &byte) in value.iter().enumerate() {
            let fault = match byte {
                b'$' => DotenvFault::Expansion,
                b'`' => DotenvFault::Backquote,
                b'\\' => DotenvFault::Backslash,
                b'\'' | b'"' => DotenvFault::QuoteInside,
                b'#' => DotenvFault::Hash,
                b'\r' => DotenvFault::CarriageReturn,
                _ => {
                    self.push(byte, start + at)?;
                    continue;
                }
            };
            return Err((fault, start + at));
        }
        self.at = start + value.len();
        Ok(())
    }

    /// Writes one byte of a value, unless the grammar cannot hold it.
    fn push(&mut self, byte: u8, at: usize) -> Result<(), Refusal> {
        match byte {
            b'\'' => return Err((DotenvFault::SingleQuote, at)),
            0 => return Err((DotenvFault::File(EnvFileFault::Nul), at)),
            _ => self.out.push(byte),
        }
        Ok(())
    }

    /// Reads and writes a comment, if there is one, and reads the end of the line.
    fn end_of_line(&mut self) -> Result<(), Refusal> {
        let line = self.rest_of_line();
        let comment = line.strip_suffix(b"\r").unwrap_or(line);
        if let Some(at) = memchr(0, comment) {
            return Err((DotenvFault::File(EnvFileFault::Nul), self.at + at));
        }
        if let Some(at) = memchr(b'\r', comment).filter(|_| !comment.starts_with(b"#")) {
            return Err((DotenvFault::File(EnvFileFault::CarriageReturn), self.at + at));
        }
        self.out.extend_from_slice(comment.trim_ascii_end());
        self.at = (self.at + line.len() + 1).min(self.text.len());
        Ok(())
    }

    fn skip_line(&mut self, from: usize) {
        self.at = from.max(self.at).min(self.text.len());
        self.at = (self.at + self.rest_of_line().len() + 1).min(self.text.len());
    }

    fn skip_blanks(&mut self) {
        while let Some(b' ' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    fn follows_blank(&self, at: usize) -> bool {
        let before = at.checked_sub(1).and_then(|before| self.text.get(before));
        matches!(before, Some(b' ' | b'\t'))
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn rest(&self) -> &'a [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn rest_of_line(&self) -> &'a [u8] {
        let rest = self.rest();
        rest.get(..memchr(b'\n', rest).unwrap_or(rest.len())).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::string::{String, ToString};

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let rewritten = rewrite(text.as_bytes(), NameRules::Relaxed)
            .unwrap_or_else(|errors| panic!("{text:?} is refused: {errors:?}"));
        let rewritten = String::from_utf8(rewritten.expose().to_vec()).unwrap();
        assert_eq!(rewritten, expected, "{text:?}");
        assert!(EnvFile::parse(rewritten.as_bytes(), NameRules::Relaxed).is_ok());
    }

    #[track_caller]
    fn refuse(text: &str, code: &str, column: usize) {
        let errors = rewrite(text.as_bytes(), NameRules::Relaxed).err().expect("a refusal");
        assert_eq!(errors[0].fault().code(), code, "{text:?}");
        assert_eq!(errors[0].position().column(), column, "{text:?}");
    }

    #[test]
    fn unquoted_values_are_quoted() {
        check("A=1", "A='1'\n");
        check("A=some text  ", "A='some text'\n");
        check("A = b", "A='b'\n");
        check("A=", "A=''\n");
        check("A= # nothing", "A='' # nothing\n");
        check("URL=postgres://u:p@h/db?x=1&y=2;z", "URL='postgres://u:p@h/db?x=1&y=2;z'\n");
        check("A=b # why", "A='b' # why\n");
        check("A=é", "A='é'\n");
    }

    #[test]
    fn double_quotes_lose_their_escapes() {
        check(r#"A="b""#, "A='b'\n");
        check(r#"A="two\nlines\tand \"more\" \\ \$5""#, "A='two\nlines\tand \"more\" \\ $5'\n");
        check("A=\"real\nbreak\" # c", "A='real\nbreak' # c\n");
        check(r#"A="""#, "A=''\n");
    }

    #[test]
    fn export_and_windows_line_endings_go_away() {
        check("export A='b'\r\nexport\tC=d\r\n\r\n# e\r\n", "A='b'\nC='d'\n\n# e\n");
        check("\u{feff}A=b\n", "A='b'\n");
        check("export=1", "export='1'\n");
    }

    #[test]
    fn comments_blank_lines_and_good_lines_stay() {
        check("# head\n\n  A='b'   # c\nB='x\n#y\n'\n", "# head\n\nA='b' # c\nB='x\n#y\n'\n");
        check("", "");
        check("\n", "\n");
        check("A='b'", "A='b'\n");
    }

    #[test]
    fn what_has_two_meanings_is_refused() {
        refuse("A=$B", "expansion", 3);
        refuse("A=\"${B}\"", "expansion", 4);
        refuse("A=`id`", "backquote", 3);
        refuse("A=C:\\dir", "backslash", 5);
        refuse("A=b#c", "hash", 4);
        refuse("A=#c", "hash", 3);
        refuse("A=b\"c\"", "quote-inside", 4);
        refuse("A=it's", "quote-inside", 5);
        refuse("A=\"\\d\"", "escape", 4);
        refuse("A=\"a\r\nb\"", "carriage-return-in-value", 5);
        refuse("A=\"b\"c", "text-after-value", 6);
        refuse("A='b'#c", "comment-needs-space", 6);
    }

    #[test]
    fn what_the_grammar_cannot_say_is_refused() {
        refuse("A=\"it's\"", "single-quote", 6);
        refuse("A", "missing-equals", 1);
        refuse("export A", "missing-equals", 8);
        refuse("=b", "empty-name", 1);
        refuse("a b=c", "shell-character", 2);
        refuse("A+=c", "append", 2);
        refuse("A[0]=c", "array-element", 2);
        refuse("A=\"b", "unterminated", 3);
        refuse("A='b", "unterminated", 3);
        refuse("A=b\0", "nul", 4);
        refuse("# \0", "nul", 3);
    }

    #[test]
    fn every_bad_line_is_reported_and_no_value_is_quoted() {
        let errors =
            rewrite(b"A=$SECRET\nB=ok\nC=it's-SECRET\n", NameRules::Relaxed).err().unwrap();
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "line 1, column 3: this value refers to another variable, which env files cannot do",
                "line 3, column 5: readers disagree on quotes inside an unquoted value",
            ]
        );
    }

    /// FILE-36
    #[test]
    fn limits_hold_before_and_after_file_36() {
        let long = |length: usize| ["A='", &"x".repeat(length), "'"].concat();
        assert!(rewrite(long(32_768).as_bytes(), NameRules::Relaxed).is_ok());
        refuse(&long(32_769), "value-too-long", 3);
        // The quotes make the output longer than the input.
        let grows = "A=\n".repeat(21_845);
        refuse(&grows, "file-too-long", 1);
    }
}
