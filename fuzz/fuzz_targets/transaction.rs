//! Whatever a server without scripts has at a lock's keys, a transaction decides without a panic.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| redis_lock_core::fuzzing::transaction(bytes));
