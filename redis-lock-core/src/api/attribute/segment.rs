//! Values that can be part of a key.

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::num::NonZero;
use std::rc::Rc;
use std::sync::Arc;

use uuid::Uuid;

/// A value that can be part of a key template: `#[redis_lock(key = "order:{order_id}")]`.
///
/// Two processes must write the same text for equal values and different text for different ones,
/// or they lock different keys for the same thing. So floats have no `KeySegment`, and neither has
/// whatever merely implements `Display` or `Debug`.
///
/// For your types, `#[derive(KeySegment)]` (of the crate `redis-locks`) writes it. In a manual
/// implementation, delegate to the field that identifies the value. The text is escaped, so a
/// value can't imitate the template around it:
///
/// ```
/// use std::fmt;
/// use redis_locks::{KeySegment, SegmentWriter};
///
/// struct OrderId(u64);
///
/// impl KeySegment for OrderId {
///     fn write_segment(&self, out: &mut SegmentWriter<'_>) -> fmt::Result {
///         self.0.write_segment(out)
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be part of a lock key",
    label = "this value is used in the key",
    note = "a key must be the same text in every process: integers, strings, `bool`, `char` and `Uuid` are; floats are not, and an `Option` does not say what `None` locks",
    note = "derive `KeySegment` for your own type; for another type pass text by name, `key(\"…{{x}}…\", x = x.to_string())`, or what it dereferences to, `x = *x`"
)]
pub trait KeySegment {
    /// Whether the template asks for a width that pads with zeros.
    #[doc(hidden)]
    fn is_numeric(&self) -> bool {
        false
    }

    /// Writes what identifies the value. Writing nothing makes the key invalid.
    ///
    /// # Errors
    /// Those of `out`.
    fn write_segment(&self, out: &mut SegmentWriter<'_>) -> fmt::Result;
}

/// Takes a value's text and escapes what could be mistaken for the template around it.
///
/// ASCII letters, digits and `-._~@+=` are kept. Every other byte becomes `%` and two capital hex
/// digits. Which other characters are letters would depend on the version of Rust.
pub struct SegmentWriter<'a> {
    out: &'a mut dyn Write,
    chars: usize,
}

impl<'a> SegmentWriter<'a> {
    pub(super) fn new(out: &'a mut dyn Write) -> Self {
        Self { out, chars: 0 }
    }

    /// Writes several values as one, joined by `:`, which no value contains unescaped.
    ///
    /// Two values are the same text only when all of their parts are, as long as they have the same
    /// number of parts.
    ///
    /// # Errors
    /// When a part is empty, and those of the writer.
    pub fn write_parts(&mut self, parts: &[&dyn KeySegment]) -> fmt::Result {
        for (index, part) in parts.iter().enumerate() {
            if index > 0 {
                self.plain(":")?;
            }
            let before = self.chars;
            part.write_segment(self)?;
            if self.chars == before {
                return Err(fmt::Error);
            }
        }
        Ok(())
    }

    /// How many characters were written so far, escapes counted as they are written.
    pub(super) fn chars(&self) -> usize {
        self.chars
    }
}

impl Write for SegmentWriter<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(start) = rest.find(|c| !stands_for_itself(c)) {
            let (plain, special) = rest.split_at(start);
            self.plain(plain)?;
            let mut chars = special.chars();
            let Some(c) = chars.next() else { break };
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                self.chars += 3;
                write!(self.out, "%{byte:02X}")?;
            }
            rest = chars.as_str();
        }
        self.plain(rest)
    }
}

impl SegmentWriter<'_> {
    fn plain(&mut self, text: &str) -> fmt::Result {
        self.chars += text.chars().count();
        self.out.write_str(text)
    }
}

impl fmt::Debug for SegmentWriter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SegmentWriter").field("chars", &self.chars).finish_non_exhaustive()
    }
}

fn stands_for_itself(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-._~@+=".contains(c)
}

macro_rules! by_display {
    ($numeric:literal: $($ty:ty),+) => {$(
        impl KeySegment for $ty {
            fn is_numeric(&self) -> bool {
                $numeric
            }

            fn write_segment(&self, out: &mut SegmentWriter<'_>) -> fmt::Result {
                write!(out, "{self}")
            }
        }
    )+};
}

by_display!(true: u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize);
by_display!(true: NonZero<u8>, NonZero<u16>, NonZero<u32>, NonZero<u64>, NonZero<u128>, NonZero<usize>);
by_display!(true: NonZero<i8>, NonZero<i16>, NonZero<i32>, NonZero<i64>, NonZero<i128>, NonZero<isize>);
by_display!(false: bool, char, Uuid, IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6);

impl KeySegment for str {
    fn write_segment(&self, out: &mut SegmentWriter<'_>) -> fmt::Result {
        out.write_str(self)
    }
}

impl KeySegment for String {
    fn write_segment(&self, out: &mut SegmentWriter<'_>) -> fmt::Result {
        out.write_str(self)
    }
}

macro_rules! by_target {
    ($($ty:ty),+) => {$(
        #[diagnostic::do_not_recommend]
        impl<T: KeySegment + ?Sized> KeySegment for $ty {
            fn is_numeric(&self) -> bool {
                T::is_numeric(self)
            }

            fn write_segment(&self, out: &mut SegmentWriter<'_>) -> fmt::Result {
                T::write_segment(self, out)
            }
        }
    )+};
}

by_target!(&T, &mut T, Box<T>, Rc<T>, Arc<T>);

#[diagnostic::do_not_recommend]
impl<T: KeySegment + ToOwned + ?Sized> KeySegment for Cow<'_, T> {
    fn is_numeric(&self) -> bool {
        T::is_numeric(self)
    }

    fn write_segment(&self, out: &mut SegmentWriter<'_>) -> fmt::Result {
        T::write_segment(self, out)
    }
}

/// A value on its way into a key. Its `Display` is the value's segment, escaped and padded.
///
/// The bounds are on `Display` and not on [`segment`], so that the compiler reports a type that
/// can't be in a key once, at its placeholder.
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
    /// Writes the escaped value and returns its number of characters. An empty value is an
    /// error. `render` reports it, because `format_args!` can carry only the fact.
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
