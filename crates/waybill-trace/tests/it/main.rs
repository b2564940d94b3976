//! The public face of the crate: the page, in a real browser.

#![cfg(test)]

mod page;
