//! No bytes of a server make the reader of replies panic; in whatever pieces they come, they are the same replies.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| redis_lock_core::fuzzing::replies(bytes));
