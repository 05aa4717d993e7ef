//! Text that others wrote, as it may be shown: in errors, logs and terminals.

use std::fmt::{self, Display, Write};

/// The text, with control characters and what turns or hides other characters escaped, and cut after
/// `most` characters. It can't end a line, colour a terminal, or seem to be something else.
pub(crate) fn harmless(text: impl Display, most: usize) -> String {
    let mut out = HarmlessWriter { text: String::new(), left: most };
    // It fails when it is full; the rest is not even formatted.
    if write!(out, "{text}").is_err() {
        out.text.push('…');
    }
    out.text
}

/// Whether a character changes how others are shown, or is not shown at all.
pub(crate) fn is_odd(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{61c}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

struct HarmlessWriter {
    text: String,
    left: usize,
}

impl Write for HarmlessWriter {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            self.left = self.left.checked_sub(1).ok_or(fmt::Error)?;
            if is_odd(c) {
                self.text.extend(c.escape_unicode());
            } else {
                self.text.push(c);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_can_be_forged_and_nothing_is_long() {
        assert_eq!(harmless("host/1 ü 漢 `a`", 80), "host/1 ü 漢 `a`");
        assert_eq!(harmless("a\x1b[31m\nb", 80), "a\\u{1b}[31m\\u{a}b");
        assert_eq!(harmless("x\u{202e}y\u{2066}\u{9b}", 80), "x\\u{202e}y\\u{2066}\\u{9b}");
        assert_eq!(harmless("four", 4), "four");
        assert_eq!(harmless("fives", 4), "five…");
    }
}
