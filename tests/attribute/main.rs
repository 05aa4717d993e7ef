//! The attribute on functions that compile: each case is named after its number in the catalogue of
//! edge cases. That nothing here warns is half of the test.
#![deny(warnings)]

mod arguments;
mod context;
mod hygiene;
mod keys;
mod options;
mod qualifiers;
mod returns;
mod scenery;
mod sending;
