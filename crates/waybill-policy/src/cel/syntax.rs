//! From the text of an expression to its compiled form.
//!
//! The parser of the crate `cel` is recursive in the text, so it runs on a thread whose stack is
//! large enough for the longest text that is accepted, and nothing deeper than [`MAX_NESTING`]
//! leaves that thread.

use std::{fmt, thread};

use cel::parser::{ParseErrors, Parser};

use super::{
    check::{Scope, Wanted},
    lower::Lowering,
    tree::Node,
    types::Type,
};

/// The longest expression, in bytes. Upstream takes 100,000 characters; the largest policies that
/// are published stay far below this.
pub(super) const MAX_LENGTH: usize = 16 * 1024;

/// How deep calls, operators and literals may lie in one another. Texts of operators such as
/// `a + b + c` nest, too.
pub(super) const MAX_NESTING: usize = 100;

/// The stack for parsing [`MAX_LENGTH`] bytes of the worst kind, with room to spare in a debug build:
/// see `the_deepest_text_is_parsed_without_overflow`.
const PARSER_STACK: usize = 512 * 1024 * 1024;

/// An expression that was compiled.
#[derive(Debug)]
pub struct Expression {
    source: Box<str>,
    pub(super) node: Node,
    pub(super) result: Type,
}

impl Expression {
    /// Compiles `source`, which may use what is in `scope` and must result in `wanted`.
    pub fn compile(source: &str, scope: &Scope, wanted: Wanted) -> Result<Self, CompileError> {
        if source.len() > MAX_LENGTH {
            return Err(CompileError(format!(
                "the expression has {} bytes, and may have {MAX_LENGTH}; use variables",
                source.len()
            )));
        }
        let (node, result) = parse(source, scope)?;
        if !wanted.allows(result) {
            return Err(CompileError(wanted.refusal(result)));
        }
        Ok(Self { source: source.into(), node, result })
    }

    /// The text it was compiled from.
    pub fn source(&self) -> &str {
        &self.source
    }
}

/// Why an expression was not compiled: upstream's text, with the place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CompileError(String);

impl CompileError {
    /// What is wrong, without saying that the expression is not compiled for it.
    pub(crate) fn issues(&self) -> &str {
        self.0.strip_prefix(FAILED).unwrap_or(&self.0)
    }
}

const FAILED: &str = "compilation failed: ";

fn parse(source: &str, scope: &Scope) -> Result<(Node, Type), CompileError> {
    let result = thread::scope(|threads| {
        let parser = thread::Builder::new().name("cel-parser".to_owned()).stack_size(PARSER_STACK);
        let parsing = parser
            .spawn_scoped(threads, || parse_here(source, scope))
            .map_err(|error| CompileError(format!("no thread to parse the expression: {error}")))?;
        // A parser that panics refuses the expression; it has touched nothing else.
        parsing
            .join()
            .unwrap_or_else(|_| Err(CompileError("the expression cannot be parsed".to_owned())))
    })?;
    Ok(result)
}

fn parse_here(source: &str, scope: &Scope) -> Result<(Node, Type), CompileError> {
    let parser = Parser::new().enable_optional_syntax(true).enable_ident_escape_syntax(true);
    let (parsed, places) =
        parser.parse_with_source_info(source).map_err(|errors| syntax_errors(source, &errors))?;
    Lowering::new(scope).lower(parsed).map_err(|fault| {
        let at = places.offset_for(fault.id).map_or(0, |(start, _)| start as usize);
        let (line, column) = place(source, at);
        let marked = Marked { source, line, column, fault: &fault.text };
        CompileError(format!("{FAILED}{marked}"))
    })
}

fn syntax_errors(source: &str, errors: &ParseErrors) -> CompileError {
    let texts: Vec<_> = errors
        .errors
        .iter()
        .take(MOST_ERRORS)
        .map(|error| {
            // What the crate says of its own limits is the text of a structure.
            let fault = match error.msg.contains("Recursion limit") {
                true => "expression recursion limit exceeded",
                false => error.msg.as_str(),
            };
            let line = usize::try_from(error.pos.0).unwrap_or(1).max(1);
            let column = usize::try_from(error.pos.1).unwrap_or(1).max(1);
            Marked { source, line, column, fault }.to_string()
        })
        .collect();
    CompileError(format!("{FAILED}{}", texts.join("\n")))
}

/// One mistake leads to many; nobody reads more.
const MOST_ERRORS: usize = 5;

/// A fault with the line it is in and a mark below it, as cel-go prints it.
struct Marked<'s> {
    source: &'s str,
    line: usize,
    column: usize,
    fault: &'s str,
}

impl fmt::Display for Marked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, line, column, fault } = self;
        write!(f, "ERROR: <input>:{line}:{column}: {fault}")?;
        match source.lines().nth(line - 1) {
            Some(text) if text.len() <= LONGEST_LINE => {
                write!(f, "\n | {text}\n | {}^", ".".repeat(column.saturating_sub(1)))
            }
            _ => Ok(()),
        }
    }
}

/// Lines that are longer than this are not repeated below an error.
const LONGEST_LINE: usize = 500;

/// Line and column, both from 1, of the byte `at`.
fn place(source: &str, at: usize) -> (usize, usize) {
    let before = source.get(..at).unwrap_or(source);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |text| text.chars().count()) + 1;
    (line, column)
}
