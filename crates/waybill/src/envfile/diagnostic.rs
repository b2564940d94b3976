//! Faults for people: where, what, and what to write instead.
//!
//! ```text
//! error[unquoted]: a value must be enclosed in single quotes
//!  --> app.env:2:10
//!   |
//! 2 | PASSWORD=…
//!   |          ^
//!   = help: write NAME='value'; `waybill envfile fmt` does it for you
//! ```
//!
//! The excerpt shows names and quotes; whatever may be part of a value is one `…`, whatever its
//! length. After a value of several lines, or a fault that may have spilled one over the following
//! lines, names are hidden as well, since they may be pieces of it. (A value that contains its own
//! closing quote at the end of a line has ended there for every reader; what follows counts as
//! lines of the file.)

use std::{
    fmt::{self, Write},
    io::{self, IsTerminal},
};

use serde_json::{Value, json};
use waybill_core::env::{
    dotenv::{DotenvError, DotenvFault},
    file::{EnvFileError, EnvFileFault, Position},
};

use super::input::Input;

/// More than a screen of faults helps nobody.
const SHOWN: usize = 20;

/// A fault with its advice.
pub(super) struct Diagnostic {
    code: &'static str,
    message: String,
    help: &'static str,
    position: Position,
    opened_line: Option<usize>,
    /// What this fault says about the lines after it.
    aftermath: Aftermath,
}

/// Whether text after a fault may be a piece of a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Aftermath {
    /// The value ended where the line did.
    Contained,
    /// The value was not in single quotes: its next line might be `…=`, as the end of Base64 is.
    Doubtful,
    /// The value may go on in the following lines.
    Spilled,
}

impl Diagnostic {
    /// The fault for machines; no excerpt, no values.
    pub(super) fn to_json(&self, input: &Input) -> Value {
        json!({
            "file": input.to_string(),
            "line": self.position.line(),
            "column": self.position.column(),
            "code": self.code,
            "message": self.message,
            "help": self.help,
        })
    }
}

impl From<&EnvFileError> for Diagnostic {
    fn from(error: &EnvFileError) -> Self {
        let fault = error.fault();
        Self {
            code: fault.code(),
            message: fault.to_string(),
            help: file_help(fault),
            position: error.position(),
            opened_line: error.opened_line(),
            aftermath: aftermath(fault),
        }
    }
}

impl From<&DotenvError> for Diagnostic {
    fn from(error: &DotenvError) -> Self {
        let fault = error.fault();
        let (help, aftermath) = match fault {
            DotenvFault::File(fault) => (file_help(fault), aftermath(fault)),
            _ => (dotenv_help(fault), Aftermath::Spilled),
        };
        Self {
            code: fault.code(),
            message: fault.to_string(),
            help,
            position: error.position(),
            opened_line: error.opened_line(),
            aftermath,
        }
    }
}

/// All faults of one file, ready to print.
pub(super) struct Report<'a> {
    pub(super) input: &'a Input,
    pub(super) text: &'a [u8],
    pub(super) diagnostics: &'a [Diagnostic],
    pub(super) style: Style,
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut trust = Trust::Names;
        for diagnostic in self.diagnostics.iter().take(SHOWN) {
            self.write(f, diagnostic, trust)?;
            trust = trust.after(diagnostic.aftermath);
        }
        let count = self.diagnostics.len();
        let plural = if count == 1 { "" } else { "s" };
        write!(f, "{}: {count} fault{plural}", self.input)?;
        if count > SHOWN {
            write!(f, ", the first {SHOWN} are shown")?;
        }
        writeln!(f, " (values appear as …)")
    }
}

impl Report<'_> {
    fn write(&self, f: &mut impl Write, diagnostic: &Diagnostic, trust: Trust) -> fmt::Result {
        let Self { input, style, .. } = self;
        let Diagnostic { code, message, help, position, opened_line, .. } = diagnostic;
        let (line, column) = (position.line(), position.column());
        let number = line.to_string();
        let margin = " ".repeat(number.len());
        let (error, bold, blue, plain) = style.codes();
        writeln!(f, "{error}error[{code}]{plain}{bold}: {message}{plain}")?;
        writeln!(f, "{margin}{blue}-->{plain} {input}:{line}:{column}")?;
        // The byte after the limit may stand anywhere, in a value too.
        if *code != EnvFileFault::FileTooLong.code() {
            let Excerpt { text, caret } = self.excerpt(diagnostic, trust);
            let spaces = " ".repeat(caret);
            writeln!(f, "{margin} {blue}|{plain}")?;
            writeln!(f, "{blue}{number} |{plain} {text}")?;
            writeln!(f, "{margin} {blue}|{plain} {spaces}{error}^{plain}")?;
        }
        if let Some(opened) = opened_line {
            writeln!(
                f,
                "{margin} {blue}={plain} note: this value begins on line {opened}; is its closing \
                 quote missing there?"
            )?;
        }
        writeln!(f, "{margin} {blue}={plain} help: {help}")?;
        writeln!(f)
    }

    fn excerpt(&self, diagnostic: &Diagnostic, trust: Trust) -> Excerpt {
        let show_name = match trust {
            _ if self.follows_open_line(diagnostic) => false,
            Trust::Names => true,
            Trust::NamesWithValues => diagnostic.code != EnvFileFault::EmptyValue.code(),
            Trust::Nothing => false,
        };
        let fault = diagnostic.position.column() - 1;
        let starts_inside = diagnostic.opened_line.is_some();
        Excerpt::new(self.line_of(diagnostic), fault, starts_inside, show_name)
    }

    /// Whether a value of several lines stands before the fault's line. If a quote was forgotten
    /// there, inside and outside are swapped from then on, perhaps without a fault of their own.
    fn follows_open_line(&self, diagnostic: &Diagnostic) -> bool {
        let lines = self.text.split(|&byte| byte == b'\n').take(diagnostic.position.line() - 1);
        // Whether a backslash keeps a quote from counting depends on where it stands, so try both.
        let odd = |line: &[u8], quote: u8| {
            let quotes = line.iter().filter(|&&byte| byte == quote).count();
            let escaped = line.windows(2).filter(|pair| *pair == [b'\\', quote]).count();
            quotes % 2 == 1 || (quotes - escaped) % 2 == 1
        };
        lines.into_iter().any(|line| odd(line, b'\'') || odd(line, b'"'))
    }

    fn line_of(&self, diagnostic: &Diagnostic) -> &[u8] {
        let start = diagnostic.position.offset() + 1 - diagnostic.position.column();
        let rest = self.text.get(start..).unwrap_or_default();
        rest.split(|&byte| byte == b'\n').next().unwrap_or_default()
    }
}

/// What may be shown of a line.
#[derive(Clone, Copy)]
enum Trust {
    /// The name before the `=`.
    Names,
    /// The same, unless nothing follows the `=`.
    NamesWithValues,
    /// No text at all.
    Nothing,
}

impl Trust {
    fn after(self, aftermath: Aftermath) -> Self {
        match (self, aftermath) {
            (Self::Nothing, _) | (_, Aftermath::Spilled) => Self::Nothing,
            (_, Aftermath::Doubtful) => Self::NamesWithValues,
            (trust, Aftermath::Contained) => trust,
        }
    }
}

/// A line with everything hidden that may be part of a value, and where its fault stands.
struct Excerpt {
    text: String,
    caret: usize,
}

impl Excerpt {
    fn new(line: &[u8], fault: usize, starts_inside: bool, show_name: bool) -> Self {
        let mut masked = Masked { line, at: 0, fault, text: String::new(), width: 0, caret: None };
        if starts_inside {
            masked.end_of_value();
        } else {
            masked.assignment(show_name);
        }
        masked.after_value();
        let caret = masked.caret.unwrap_or(masked.width);
        Self { text: masked.text, caret }
    }
}

struct Masked<'a> {
    line: &'a [u8],
    at: usize,
    fault: usize,
    text: String,
    width: usize,
    caret: Option<usize>,
}

impl Masked<'_> {
    /// Copies `export`, the name and the equals sign, and hides the value.
    fn assignment(&mut self, show_name: bool) {
        self.show_blanks();
        if self.rest().starts_with(b"export ") || self.rest().starts_with(b"export\t") {
            self.show(b"export".len());
            self.show_blanks();
        }
        let Some(equals) = self.rest().iter().position(|&byte| byte == b'=') else {
            self.hide(self.rest().len());
            return;
        };
        let name = self.rest().get(..equals).unwrap_or_default().trim_ascii_end();
        if show_name && is_plain_name(name) {
            self.show(name.len());
            self.show_blanks();
        } else {
            self.hide(equals);
        }
        self.show(1);
        self.show_blanks();
        match self.rest() {
            [quote @ (b'\'' | b'"'), ..] => {
                let quote = *quote;
                self.show(1);
                self.hide_until(quote);
            }
            rest => self.hide(rest.len()),
        }
    }

    /// Hides everything before the fault but a closing quote.
    fn end_of_value(&mut self) {
        let before = self.line.get(..self.fault).unwrap_or_default().trim_ascii_end();
        match before {
            [value @ .., b'\'' | b'"'] => {
                self.hide(value.len());
                self.show(1);
            }
            _ => self.hide(self.fault),
        }
    }

    /// Shows the structure of what follows a closing quote.
    fn after_value(&mut self) {
        self.show_blanks();
        if let [b'#' | b'\'' | b'"' | b';', ..] = self.rest() {
            self.show(1);
        }
        self.hide(self.rest().len());
    }

    /// Hides up to the next `quote` and shows the quote.
    fn hide_until(&mut self, quote: u8) {
        match self.rest().iter().position(|&byte| byte == quote) {
            Some(length) => {
                self.hide(length);
                self.show(1);
            }
            None => self.hide(self.rest().len()),
        }
    }

    fn show_blanks(&mut self) {
        let is_blank = |byte: &&u8| matches!(byte, b' ' | b'\t');
        self.show(self.rest().iter().take_while(is_blank).count());
    }

    fn show(&mut self, length: usize) {
        for _ in 0..length {
            let byte = self.line.get(self.at).copied().unwrap_or(b' ');
            self.mark(1);
            self.text.push(if byte == b'\t' { ' ' } else { char::from(byte) });
        }
    }

    fn hide(&mut self, length: usize) {
        if length > 0 {
            self.mark(length);
            self.text.push('…');
        }
    }

    /// Takes `length` bytes into one cell of the excerpt.
    fn mark(&mut self, length: usize) {
        if (self.at..self.at + length).contains(&self.fault) {
            self.caret = Some(self.width);
        }
        self.at += length;
        self.width += 1;
    }

    fn rest(&self) -> &[u8] {
        self.line.get(self.at..).unwrap_or_default()
    }
}

/// A name that nobody would take for a piece of a secret.
fn is_plain_name(name: &[u8]) -> bool {
    name.first().is_some_and(|first| !first.is_ascii_digit())
        && name.len() <= 64
        && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}

/// Colours on a terminal, plain text elsewhere.
#[derive(Clone, Copy)]
pub(super) enum Style {
    Colours,
    Plain,
}

impl Style {
    #[expect(clippy::disallowed_methods, reason = "this is where the binary reads its environment")]
    pub(super) fn of_stderr() -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        if io::stderr().is_terminal() && !refused { Self::Colours } else { Self::Plain }
    }

    /// Escape codes for: what is wrong, what matters, the frame, and back to normal.
    fn codes(self) -> (&'static str, &'static str, &'static str, &'static str) {
        match self {
            Self::Colours => ("\x1b[1;31m", "\x1b[1m", "\x1b[1;34m", "\x1b[0m"),
            Self::Plain => ("", "", "", ""),
        }
    }
}

fn aftermath(fault: EnvFileFault) -> Aftermath {
    match fault {
        EnvFileFault::Append
        | EnvFileFault::ArrayElement
        | EnvFileFault::ByteOrderMark
        | EnvFileFault::CarriageReturn
        | EnvFileFault::EmptyName
        | EnvFileFault::EmptyValue
        | EnvFileFault::Export
        | EnvFileFault::NameCharacter
        | EnvFileFault::NameForm
        | EnvFileFault::ShellCharacter
        | EnvFileFault::SpaceAfterEquals
        | EnvFileFault::SpaceBeforeEquals
        | EnvFileFault::ValueTooLong { .. } => Aftermath::Contained,
        // If it is not closed on its line, `follows_open_line` sees that.
        EnvFileFault::DoubleQuotes | EnvFileFault::Unquoted => Aftermath::Doubtful,
        _ => Aftermath::Spilled,
    }
}

fn file_help(fault: EnvFileFault) -> &'static str {
    match fault {
        EnvFileFault::AdjacentQuotes | EnvFileFault::TextAfterValue => {
            "end the line after the closing quote; a value cannot contain a single quote"
        }
        EnvFileFault::Append => "write the whole value: NAME='value'",
        EnvFileFault::ArrayElement => "write a plain name: NAME='value'",
        EnvFileFault::ByteOrderMark => {
            "save the file as UTF-8 without BOM; `waybill envfile fmt` does it for you"
        }
        EnvFileFault::CarriageReturn => {
            "save the file with Unix line endings; `waybill envfile fmt` does it for you"
        }
        EnvFileFault::CommentNeedsSpace => {
            "put a space before the #, or move the quote behind it if it belongs to the value"
        }
        EnvFileFault::DoubleQuotes => {
            "write NAME='value'; escapes like \\n have no meaning there; `waybill envfile fmt` \
             rewrites both"
        }
        EnvFileFault::EmptyName => "write a name before the =: NAME='value'",
        EnvFileFault::EmptyValue => "write NAME='' for an empty value",
        EnvFileFault::Export => "write NAME='value' alone; `waybill envfile fmt` does it for you",
        EnvFileFault::FileTooLong => {
            "keep large content in a volume and put its path into a variable"
        }
        EnvFileFault::MissingEquals => "write NAME='value', or start a comment with #",
        EnvFileFault::NameCharacter => {
            "names consist of printable ASCII characters except =; under --names strict of \
             letters, digits, _, - and ."
        }
        EnvFileFault::NameForm => "do not start a name with a digit or with ..",
        EnvFileFault::NameTooLong { .. } => "choose a shorter name",
        EnvFileFault::Nul => "env files are text; is this a binary file, or UTF-16?",
        EnvFileFault::ShellCharacter => {
            "leave out of the name: spaces, quotes, ` \\ $ ; & | < > ( and )"
        }
        EnvFileFault::SpaceAfterEquals | EnvFileFault::SpaceBeforeEquals => {
            "write NAME='value' without spaces around the ="
        }
        EnvFileFault::Unterminated => "close the value with ' at its end",
        EnvFileFault::Unquoted => "write NAME='value'; `waybill envfile fmt` does it for you",
        EnvFileFault::ValueTooLong { .. } => {
            "keep large content in a volume and put its path into a variable"
        }
        _ => "write NAME='value'",
    }
}

fn dotenv_help(fault: DotenvFault) -> &'static str {
    match fault {
        DotenvFault::Backquote => "write the result of the command: NAME='value'",
        DotenvFault::Backslash | DotenvFault::QuoteInside => {
            "enclose the value in single quotes if it is meant as it stands"
        }
        DotenvFault::CarriageReturn => "write the line breaks of this value as \\n",
        DotenvFault::Escape => "known escapes are \\n \\r \\t \\\" \\\\ \\$ \\` and \\'",
        DotenvFault::Expansion => {
            "write the value itself, or enclose it in single quotes if $ is meant as it stands"
        }
        DotenvFault::Hash => "put a space before the # for a comment, or quote the value",
        DotenvFault::SingleQuote => "keep such a value in a Secret or ConfigMap instead",
        _ => "write NAME='value'",
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*, sample::select};
    use waybill_core::env::{dotenv, file::EnvFile, name::NameRules};

    use super::*;

    /// Stands in every value of the generated files and nowhere else.
    const CANARY: &str = "CANARY";

    fn reports(text: &[u8]) -> String {
        let report = |diagnostics: Vec<Diagnostic>| {
            let input = Input::Stdin;
            let diagnostics = diagnostics.as_slice();
            Report { input: &input, text, diagnostics, style: Style::Plain }.to_string()
        };
        let check = EnvFile::faults(text, NameRules::Relaxed);
        let fmt = dotenv::rewrite(text, NameRules::Relaxed).err().unwrap_or_default();
        report(check.iter().map(Diagnostic::from).collect())
            + &report(fmt.iter().map(Diagnostic::from).collect())
    }

    /// Pieces of a value: each could be mistaken for something that may be shown.
    fn value() -> impl Strategy<Value = String> {
        let piece = select(vec![
            "CANARY",
            "CANARY=",
            "CANARY==",
            "CANARY=CANARY",
            "\nCANARY=",
            "\nCANARY=CANARY\n",
            "\nCANARY\n",
            "\nexport CANARY=x",
            "\n#CANARY",
            " # CANARY",
            "\nCANARY='CANARY'",
            "\"",
            "\\n",
            "\\",
            "$CANARY",
            "`CANARY`",
            "\r",
            "\0",
            "é",
            " ",
            ";",
            "\nCANARY[0]='x'\n",
            "\nCANARY+='x'\n",
            "\nCANARY ='x'\n",
            "\nCANARY=\"x\"\n",
        ]);
        vec(piece, 0..4).prop_map(|pieces| pieces.concat())
    }

    fn assignment() -> impl Strategy<Value = String> {
        let before = select(vec!["", " ", "export ", "\u{feff}"]);
        let name = select(vec!["A", "B", "a b", "A+", "A[0]", "é", "", "1"]);
        let equals = select(vec!["=", " = ", "= ", " ="]);
        let quotes = select(vec![("'", "'"), ("'", "'"), ("\"", "\""), ("'", ""), ("\"", "")]);
        let after = select(vec!["", " ", "#x", " # x", ";", "'", "\"", "x"]);
        (before, name, equals, quotes, value(), after).prop_map(
            |(before, name, equals, (open, close), value, after)| {
                // A bare double quote inside would end the value for good.
                let value = if open == "\"" { value.replace('"', "\\\"") } else { value };
                format!("{before}{name}{equals}{open}{value}{close}{after}\n")
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4096, ..ProptestConfig::default() })]

        /// FILE-20: whatever is wrong with a file, no piece of a value is printed.
        #[test]
        fn no_piece_of_a_value_is_printed_file_20(lines in vec(assignment(), 1..4)) {
            let text = lines.concat();
            let printed = reports(text.as_bytes());
            prop_assert!(!printed.contains(CANARY), "{text:?} prints\n{printed}");
        }

        #[test]
        fn any_bytes_can_be_reported(text in vec(any::<u8>(), 0..64)) {
            reports(&text);
        }
    }

    #[track_caller]
    fn check(line: &str, fault: usize, text: &str, caret: usize) {
        let excerpt = Excerpt::new(line.as_bytes(), fault, false, true);
        assert_eq!((excerpt.text.as_str(), excerpt.caret), (text, caret), "{line:?}");
    }

    #[test]
    fn excerpts_show_names_and_quotes_only() {
        check("PASSWORD=hunter2", 9, "PASSWORD=…", 9);
        check("\tA='b c'd", 8, " A='…'…", 6);
        check("A='b'  #c", 7, "A='…'  #…", 7);
        check("A=\"b\"", 2, "A=\"…\"", 2);
        check("export A='b'", 0, "export A='…'", 0);
        check("A = 'b'", 1, "A = '…'", 1);
        check("hunter2", 0, "…", 0);
        check("A=", 2, "A=", 2);
        check("hunter 2=x", 6, "…=…", 0);
    }
}
