//! Client libraries that other people wrote, against the real binary.

#![cfg(test)]

mod python;
mod reflector;
