//! The attribute on functions that compile: each case is named after its number in the catalogue of
//! edge cases. A warning in this file fails the build, which is half of the test.
#![deny(warnings)]
#![allow(
    clippy::double_must_use,
    clippy::manual_async_fn,
    clippy::non_minimal_cfg,
    clippy::ptr_arg,
    clippy::use_self,
    reason = "the cases are written as users may write them"
)]

mod arguments;
mod companions;
mod context;
mod defaults;
mod futures;
mod handlers;
mod hygiene;
mod inline_keys;
mod keys;
mod once;
mod options;
mod qualifiers;
mod returns;
mod second_call;
mod segments;
mod sending;
mod support;
