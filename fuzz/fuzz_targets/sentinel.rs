//! No reports of sentinels make what reads them panic, or are remembered without a bound.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| redis_lock_core::fuzzing::sentinel(bytes));
