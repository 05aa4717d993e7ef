//! No answer to a command makes what reads it panic.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| redis_lock_core::fuzzing::decode(bytes));
