//! Environment variables: names, values, origins, files, expansion and precedence.

pub mod name;
pub mod value;
pub mod origin;
pub mod limits;
pub mod file;
pub mod dotenv;
pub mod expand;
pub mod merge;
