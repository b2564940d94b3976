//! Tests of the public face of `waybill-core`.

#![cfg(test)]

mod bash;
mod bash_difference;
mod dotenv_laws;
mod env_file_generator;
mod file_rules;
mod merge_laws;
mod vectors;
