//! No text makes the duration parser panic, and what it reads is in bounds.
#![no_main]

#[allow(dead_code)]
#[path = "../../redis-lock-macros/src/duration.rs"]
mod duration;

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(read) = duration::parse(text) {
        assert!(read.as_secs() <= 365 * 86_400);
        assert!(text.is_ascii());
    }
});
