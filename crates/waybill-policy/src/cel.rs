//! The Common Expression Language, as Kubernetes uses it in admission.
//!
//! The grammar is that of the crate `cel`; what it parsed is lowered into an [`Expression`] of ours,
//! whose names, functions and, as far as they are known, types are checked then. Evaluation is ours
//! as well, because it must be bounded: see [`Budget`].

mod budget;
mod check;
mod declared;
mod eval;
mod fold;
mod functions;
mod lower;
mod operators;
mod regexes;
mod syntax;
mod tree;
mod types;
mod value;

pub use budget::Budget;
pub use check::{Scope, Wanted};
pub use declared::{Declared, ObjectType};
pub use eval::{Authorize, Bindings, Evaluation, Question, Verdict};
pub use syntax::{CompileError, Expression};
pub use value::{EvalError, Value};

#[cfg(test)]
mod tests;
