//! The wrapper under which a value appears in `format_args!`.

use std::fmt::{self, Write};

use super::segment::{KeySegment, SegmentWriter};

/// A value on its way into a key. Its `Display` is the value's segment, escaped and padded.
///
/// The bounds stand on `Display` and not on [`segment`], so that a type that may not be in a key is
/// reported once, at its placeholder.
pub struct Segment<'a, T: ?Sized>(&'a T);

/// Wraps a value for a key.
pub fn segment<T: ?Sized>(value: &T) -> Segment<'_, T> {
    Segment(value)
}

impl<T: KeySegment + ?Sized> fmt::Display for Segment<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(width) = f.width() else {
            return self.write(f).map(|_| ());
        };
        let chars = self.write(&mut Nowhere)?;
        let missing = width.saturating_sub(chars);
        if self.0.is_numeric() && f.sign_aware_zero_pad() {
            return self
                .write(&mut ZeroPadded { out: f, zeros: missing, started: false })
                .map(|_| ());
        }
        let before = match f.align() {
            Some(fmt::Alignment::Left) => 0,
            Some(fmt::Alignment::Center) => missing / 2,
            Some(fmt::Alignment::Right) => missing,
            None if self.0.is_numeric() => missing,
            None => 0,
        };
        let fill = f.fill();
        (0..before).try_for_each(|_| f.write_char(fill))?;
        self.write(f)?;
        (before..missing).try_for_each(|_| f.write_char(fill))
    }
}

impl<T: KeySegment + ?Sized> Segment<'_, T> {
    /// Writes the escaped value and tells how many characters it has. An empty one is an error:
    /// `render` says so, `format_args!` can carry nothing but the fact.
    fn write(&self, out: &mut dyn Write) -> Result<usize, fmt::Error> {
        let mut writer = SegmentWriter::new(out);
        self.0.write_segment(&mut writer)?;
        match writer.chars() {
            0 => Err(fmt::Error),
            chars => Ok(chars),
        }
    }
}

/// Counts the characters that are written to it.
struct Nowhere;

impl Write for Nowhere {
    fn write_str(&mut self, _: &str) -> fmt::Result {
        Ok(())
    }
}

/// Puts zeros between a sign and the first digit.
struct ZeroPadded<'a> {
    out: &'a mut dyn Write,
    zeros: usize,
    started: bool,
}

impl Write for ZeroPadded<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut text = text;
        if !self.started && !text.is_empty() {
            self.started = true;
            if let Some(digits) = text.strip_prefix('-') {
                self.out.write_char('-')?;
                text = digits;
            }
            (0..self.zeros).try_for_each(|_| self.out.write_char('0'))?;
        }
        self.out.write_str(text)
    }
}

/// Code that the attribute generates binds a lower-case name to this type, which fails to compile
/// if the name is a constant.
#[derive(Debug)]
pub struct ConstantsInKeysAreUpperCase(());

/// A value of it.
#[must_use]
pub const fn no_constant() -> ConstantsInKeysAreUpperCase {
    ConstantsInKeysAreUpperCase(())
}

/// Implemented by nothing: every style but the plain one is refused with a message.
#[diagnostic::on_unimplemented(
    message = "only the plain text of a value can be part of a lock key",
    label = "this placeholder asks for another style",
    note = "debug and pointer text may differ between two builds or processes, and then they lock different keys; write `{{x}}`, with a width like `{{x:08}}` if need be"
)]
pub trait PlainStyle {}

macro_rules! refuse {
    ($($style:ident),+) => {$(
        impl<T: PlainStyle + ?Sized> fmt::$style for Segment<'_, T> {
            fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
                Err(fmt::Error)
            }
        }
    )+};
}

refuse!(Debug, Pointer, LowerHex, UpperHex, Octal, Binary, LowerExp, UpperExp);
