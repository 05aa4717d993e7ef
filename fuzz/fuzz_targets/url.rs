//! No text makes the reader of URLs panic.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| redis_lock_core::fuzzing::url(text));
