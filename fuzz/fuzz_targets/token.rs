//! No text makes the readers of tokens, marks, labels and keys panic, and none is shown with control characters.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| redis_lock_core::fuzzing::token(text));
