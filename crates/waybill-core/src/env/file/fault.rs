//! What can be wrong with an env file, and where.

use core::fmt;

use memchr::{memchr_iter, memrchr};

use crate::env::limits::{FILE_BYTES, FILE_NAME_BYTES, FILE_VALUE_BYTES};

/// A fault with its place. The text never quotes the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{position}: {fault}")]
pub struct EnvFileError {
    fault: EnvFileFault,
    position: Position,
    opened_line: Option<usize>,
}

impl EnvFileError {
    pub(super) fn locate(text: &[u8], fault: Fault) -> Self {
        let position = Position::of(text, fault.at);
        let opened_line = fault
            .opened
            .map(|at| Position::of(text, at).line)
            .filter(|&line| line != position.line);
        Self { fault: fault.kind, position, opened_line }
    }

    /// What is wrong.
    pub fn fault(&self) -> EnvFileFault {
        self.fault
    }

    /// Where it is wrong.
    pub fn position(&self) -> Position {
        self.position
    }

    /// For a fault behind a value of several lines: the line where that value began. Often the
    /// quote that is missing is missing there.
    pub fn opened_line(&self) -> Option<usize> {
        self.opened_line
    }
}

/// A place in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    line: usize,
    column: usize,
    offset: usize,
}

impl Position {
    /// The place of byte `offset` in `text`.
    pub fn of(text: &[u8], offset: usize) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        Self {
            line: memchr_iter(b'\n', before).count() + 1,
            column: before.len() - memrchr(b'\n', before).map_or(0, |at| at + 1) + 1,
            offset,
        }
    }

    /// The line, counted from 1.
    pub fn line(self) -> usize {
        self.line
    }

    /// The byte in the line, counted from 1.
    pub fn column(self) -> usize {
        self.column
    }

    /// The byte in the text, counted from 0.
    pub fn offset(self) -> usize {
        self.offset
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// The kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EnvFileFault {
    /// `V='a''b'` or `V='a'"b"`.
    #[error("a value is one quoted string, but a second one follows")]
    AdjacentQuotes,
    /// `V+='a'`, which appends in a shell.
    #[error("appending with += is not supported")]
    Append,
    /// `V[0]='a'`, which sets an array element in a shell.
    #[error("array elements are not supported")]
    ArrayElement,
    /// The file starts with a UTF-8 byte order mark.
    #[error("the file starts with a byte order mark, which is not allowed")]
    ByteOrderMark,
    /// CR outside quotes and comments; usually the line endings of Windows.
    #[error("carriage return outside quotes")]
    CarriageReturn,
    /// `V='a'#x`, which a shell reads as the value `a#x`.
    #[error("a comment after a value needs a space before the #")]
    CommentNeedsSpace,
    /// `V="a"`.
    #[error("double quotes are not allowed, a value must be enclosed in single quotes")]
    DoubleQuotes,
    /// `='a'`.
    #[error("there is no name before the =")]
    EmptyName,
    /// `V=` with nothing behind it.
    #[error("there is no value after the =, an empty value is written ''")]
    EmptyValue,
    /// `export V='a'`.
    #[error("export is not supported")]
    Export,
    /// More than 64 KiB.
    #[error("the file has more than {FILE_BYTES} bytes, which is the most that is allowed")]
    FileTooLong,
    /// Text without `=`.
    #[error("this is neither a comment nor an assignment: there is no =")]
    MissingEquals,
    /// A byte that the rules for names refuse.
    #[error("a character that is not allowed in the name of a variable")]
    NameCharacter,
    /// A digit first, `.`, `..` or a `..` prefix: refused by the strict rules only.
    #[error("a name that the strict rules for variable names refuse")]
    NameForm,
    /// More than 128 characters.
    #[error("the name is {length} bytes long, at most {FILE_NAME_BYTES} are allowed")]
    NameTooLong {
        /// The length of the name.
        length: usize,
    },
    /// NUL, anywhere.
    #[error("NUL byte")]
    Nul,
    /// A character in the name that a shell would act on.
    #[error("a character in the name that a shell would not take as part of a name")]
    ShellCharacter,
    /// `V= 'a'`, which sets nothing in a shell.
    #[error("a space after the = is not allowed")]
    SpaceAfterEquals,
    /// `V ='a'`, which is a command in a shell.
    #[error("a space before the = is not allowed")]
    SpaceBeforeEquals,
    /// `V='a'b`, `V='a';`, `V='a' W='b'`.
    #[error("only a comment may follow a value on its line")]
    TextAfterValue,
    /// `V=a`.
    #[error("a value must be enclosed in single quotes")]
    Unquoted,
    /// The file ends inside a value.
    #[error("the quote that opens here is never closed")]
    Unterminated,
    /// More than 32 KiB.
    #[error("the value is {length} bytes long, at most {FILE_VALUE_BYTES} are allowed")]
    ValueTooLong {
        /// The length of the value.
        length: usize,
    },
}

impl EnvFileFault {
    /// A stable word for the fault, used in test vectors and JSON output.
    pub fn code(self) -> &'static str {
        match self {
            Self::AdjacentQuotes => "adjacent-quotes",
            Self::Append => "append",
            Self::ArrayElement => "array-element",
            Self::ByteOrderMark => "byte-order-mark",
            Self::CarriageReturn => "carriage-return",
            Self::CommentNeedsSpace => "comment-needs-space",
            Self::DoubleQuotes => "double-quotes",
            Self::EmptyName => "empty-name",
            Self::EmptyValue => "empty-value",
            Self::Export => "export",
            Self::FileTooLong => "file-too-long",
            Self::MissingEquals => "missing-equals",
            Self::NameCharacter => "name-character",
            Self::NameForm => "name-form",
            Self::NameTooLong { .. } => "name-too-long",
            Self::Nul => "nul",
            Self::ShellCharacter => "shell-character",
            Self::SpaceAfterEquals => "space-after-equals",
            Self::SpaceBeforeEquals => "space-before-equals",
            Self::TextAfterValue => "text-after-value",
            Self::Unquoted => "unquoted",
            Self::Unterminated => "unterminated",
            Self::ValueTooLong { .. } => "value-too-long",
        }
    }
}

/// A fault as the scanner sees it: offsets only, lines are counted when somebody asks.
#[derive(Clone, Copy)]
pub(super) struct Fault {
    pub(super) kind: EnvFileFault,
    pub(super) at: usize,
    /// Where the value before the fault opened.
    pub(super) opened: Option<usize>,
}
