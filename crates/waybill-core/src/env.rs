//! Environment variables: names, values, origins, files, expansion and precedence.

pub mod dotenv;
pub mod expand;
pub mod file;
pub mod limits;
pub mod merge;
pub mod name;
pub mod name_list;
pub mod name_pattern;
pub mod origin;
pub mod value;
