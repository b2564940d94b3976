//! Env files: the grammar of KEP-3721, a small subset of what a POSIX shell reads.
//!
//! ```text
//! # A comment.
//! NAME='value'            # Everything between the quotes is the value, byte for byte,
//! CERT='-----BEGIN
//! ...'                    # line breaks included. No escapes, no expansion.
//! ```
//!
//! The one promise: a file that parses here gives the same variables as `bash --posix` gives when it
//! sources the file. Whatever bash would read differently is refused, and the whole file is read even
//! when one key is wanted, so a fault after that key cannot hide. Errors say where and what, never a
//! byte of the file: it may hold secrets.

mod fault;
mod scan;

use alloc::vec::Vec;

use hashbrown::HashMap;

use self::scan::Scanner;
use super::name::NameRules;

pub use self::fault::{EnvFileError, EnvFileFault, Position};

/// A parsed env file; names and values borrow from its text.
pub struct EnvFile<'a> {
    assignments: Vec<Assignment<'a>>,
}

/// One `NAME='value'`.
#[derive(Clone, Copy)]
pub struct Assignment<'a> {
    name: &'a [u8],
    value: &'a [u8],
    offset: usize,
}

impl<'a> EnvFile<'a> {
    /// Parses a whole file; names follow `rules`, less what a shell would not take for a name.
    pub fn parse(text: &'a [u8], rules: NameRules) -> Result<Self, EnvFileError> {
        let mut scanner = Scanner::new(text, rules);
        let mut assignments = Vec::new();
        loop {
            match scanner.step() {
                Ok(Some(assignment)) => assignments.push(assignment),
                Ok(None) => return Ok(Self { assignments }),
                Err(fault) => return Err(EnvFileError::locate(text, fault)),
            }
        }
    }

    /// Every fault of a file, for people who want to mend it in one go; empty if it parses.
    ///
    /// After a fault, reading goes on with the next line.
    pub fn faults(text: &'a [u8], rules: NameRules) -> Vec<EnvFileError> {
        let mut scanner = Scanner::new(text, rules);
        let mut faults = Vec::new();
        loop {
            match scanner.step() {
                Ok(Some(_)) => {}
                Ok(None) => return faults,
                Err(fault) => {
                    scanner.recover(fault);
                    faults.push(EnvFileError::locate(text, fault));
                }
            }
        }
    }

    /// The value of `key`: that of its last definition (FILE-34).
    pub fn get(&self, key: &str) -> Option<&'a [u8]> {
        let last = self.assignments.iter().rev().find(|found| found.name == key.as_bytes());
        last.map(|found| found.value)
    }

    /// Every assignment in the order of the file, overridden ones included.
    pub fn assignments(&self) -> impl ExactSizeIterator<Item = Assignment<'a>> {
        self.assignments.iter().copied()
    }

    /// Every variable once, with its last value, in the order in which the names first appear.
    pub fn variables(&self) -> Vec<Assignment<'a>> {
        let mut position: HashMap<&[u8], usize> = HashMap::with_capacity(self.assignments.len());
        let mut variables: Vec<Assignment<'a>> = Vec::with_capacity(self.assignments.len());
        for assignment in self.assignments() {
            let at = *position.entry(assignment.name).or_insert(variables.len());
            match variables.get_mut(at) {
                Some(earlier) => *earlier = assignment,
                None => variables.push(assignment),
            }
        }
        variables
    }
}

impl<'a> Assignment<'a> {
    /// What stands before the `=`.
    pub fn name(&self) -> &'a str {
        // The scanner lets only printable ASCII through.
        core::str::from_utf8(self.name).unwrap_or_default()
    }

    /// What stands between the quotes.
    pub fn value(&self) -> &'a [u8] {
        self.value
    }

    /// Where the name starts, in bytes from the start of the file.
    pub fn offset(&self) -> usize {
        self.offset
    }
}
