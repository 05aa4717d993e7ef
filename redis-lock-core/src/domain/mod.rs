//! The terms that all other modules share. It depends on none of them.

pub(crate) mod checks;
pub(crate) mod clock;
pub(crate) mod config_error;
pub(crate) mod credentials;
pub(crate) mod demand;
pub(crate) mod env;
pub(crate) mod error;
pub(crate) mod fault;
pub(crate) mod glob;
pub(crate) mod key;
pub(crate) mod kind;
pub(crate) mod label;
pub(crate) mod lease;
pub(crate) mod mark;
pub(crate) mod names;
#[cfg(test)]
pub(crate) mod planted;
pub(crate) mod status;
pub(crate) mod token;
pub(crate) mod too_few;
pub(crate) mod value;
