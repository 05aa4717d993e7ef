//! No text makes the template reader panic, and what it reads accounts for the whole text.
#![no_main]

#[allow(dead_code)]
#[path = "../../redis-lock-macros/src/template.rs"]
mod template;

use template::{Piece, Template};

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(read) = Template::parse(text) {
        let written: usize = read
            .pieces
            .iter()
            .map(|piece| match piece {
                Piece::Text(text) => text.len() + text.matches(['{', '}']).count(),
                Piece::Hole(hole) => hole.source.len() + 2,
            })
            .sum();
        assert_eq!(written, text.len());
    }
});
