//! What several benches share.

#![allow(dead_code, unreachable_pub, reason = "each bench uses a part of it")]

pub mod bare;
pub mod figures;
pub mod held;
pub mod pairs;
