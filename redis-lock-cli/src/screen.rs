//! The terminal's alternate screen, which leaves the lines before it alone.

use std::io::{self, Write};

const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";

/// Goes to the first cell and clears what is below it.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// The alternate screen, until it is dropped.
pub(crate) struct Screen<W: Write> {
    out: W,
}

impl<W: Write> Screen<W> {
    pub(crate) fn enter(mut out: W) -> io::Result<Self> {
        out.write_all(ENTER.as_bytes())?;
        Ok(Self { out })
    }

    /// Shows this instead of what was shown before. Written at once, so that the terminal never
    /// shows half a picture.
    pub(crate) fn show(&mut self, picture: &str) -> io::Result<()> {
        self.out.write_all([CLEAR, picture].concat().as_bytes())?;
        self.out.flush()
    }
}

impl<W: Write> Drop for Screen<W> {
    fn drop(&mut self) {
        // A terminal that has gone needs nothing.
        let _ = self.out.write_all(LEAVE.as_bytes()).and_then(|()| self.out.flush());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_on_the_terminal_comes_back() {
        let mut written = Vec::new();
        let mut screen = Screen::enter(&mut written).unwrap();
        screen.show("one").unwrap();
        screen.show("two").unwrap();
        drop(screen);
        let expected = [ENTER, CLEAR, "one", CLEAR, "two", LEAVE].concat();
        assert_eq!(String::from_utf8(written).unwrap(), expected);
    }
}
