//! Renders a key from a template and its values.

use std::fmt::{self, Write};

use crate::{KeySegment, LockError, LockKey, SegmentWriter};

/// The longest key, as `LockKey` checks it.
const MAX_BYTES: usize = 4096;

/// Renders a key.
///
/// # Errors
/// [`InvalidKey`](LockError::InvalidKey) when a value is empty or the key too long.
pub fn render(template: fmt::Arguments<'_>) -> Result<LockKey, LockError> {
    let mut text = Text::default();
    let written = text.write_fmt(template);
    match (written, text.too_long) {
        (Ok(()), _) => Ok(text.key.into()),
        (Err(_), true) => Err(LockError::InvalidKey {
            key: text.key.chars().take(80).collect(),
            reason: format!(
                "it is longer than {MAX_BYTES} bytes; lock a shorter name, such as a hash of this one"
            ),
        }),
        (Err(_), false) => Err(LockError::InvalidKey {
            key: text.key,
            reason:
                "the value that comes next is empty, so the key would name something else; check the \
                 argument"
                    .into(),
        }),
    }
}

impl LockKey {
    /// A key of several values, each escaped as the attribute escapes the values in its template, and
    /// joined by `:`.
    ///
    /// ```
    /// use redis_locks::LockKey;
    /// # fn main() -> Result<(), redis_locks::LockError> {
    /// let key = LockKey::from_segments(["user", "ada:byron"])?;
    /// assert_eq!(key.as_str(), "user:ada%3Abyron");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`InvalidKey`](LockError::InvalidKey) when there is no value, one is empty, or the key is too long.
    pub fn from_segments<S: AsRef<str>>(
        segments: impl IntoIterator<Item = S>,
    ) -> Result<Self, LockError> {
        let segments: Vec<S> = segments.into_iter().collect();
        let segments: Vec<&str> = segments.iter().map(AsRef::as_ref).collect();
        render(format_args!("{}", super::segment::segment(&Segments(&segments))))
    }
}

/// Several values as one.
struct Segments<'a>(&'a [&'a str]);

impl KeySegment for Segments<'_> {
    fn write_segment(&self, out: &mut SegmentWriter<'_>) -> fmt::Result {
        let parts: Vec<_> = self.0.iter().map(|part| part as &dyn KeySegment).collect();
        out.write_parts(&parts)
    }
}

/// A key given as an expression.
pub fn key(key: impl Into<LockKey>) -> LockKey {
    key.into()
}

/// Keys given as one expression.
pub fn collected<K: Into<LockKey>>(keys: impl IntoIterator<Item = K>) -> Vec<LockKey> {
    keys.into_iter().map(Into::into).collect()
}

/// Several keys, or the first error among them.
///
/// # Errors
/// That of the first key that could not be rendered.
pub fn keys<const N: usize>(
    keys: [Result<LockKey, LockError>; N],
) -> Result<Vec<LockKey>, LockError> {
    keys.into_iter().collect()
}

/// A key that is put together, as long as it is not too long.
#[derive(Default)]
struct Text {
    key: String,
    too_long: bool,
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.key.len() + text.len() > MAX_BYTES {
            self.too_long = true;
            return Err(fmt::Error);
        }
        self.key.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::attribute::segment;

    fn text(template: fmt::Arguments<'_>) -> String {
        render(template).unwrap().to_string()
    }

    #[test]
    fn values_cannot_imitate_the_template() {
        let (a, b) = ("7", "a:b/%");
        let key = text(format_args!("order:{}:{}", segment(a), segment(b)));
        assert_eq!(key, "order:7:a%3Ab%2F%25");
        assert_eq!(
            text(format_args!("{}", segment("größe ñ-._~@+="))),
            "gr%C3%B6%C3%9Fe%20%C3%B1-._~@+="
        );
        assert_eq!(text(format_args!("{}", segment("\u{1F600}"))), "%F0%9F%98%80");
    }

    #[test]
    fn widths_pad_without_making_values_equal() {
        assert_eq!(text(format_args!("{:08}|{:05}", segment(&42), segment(&-7))), "00000042|-0007");
        assert_eq!(
            text(format_args!("{:5}|{:<5}|{:^5}", segment(&4), segment(&4), segment(&4))),
            "    4|4    |  4  "
        );
        assert_eq!(text(format_args!("{:05}|{:>5}", segment("42"), segment("a:"))), "42   | a%3A");
    }

    #[test]
    fn empty_values_and_long_keys_are_invalid() {
        let empty = render(format_args!("order:{}:x", segment(""))).unwrap_err();
        assert!(
            matches!(&empty, LockError::InvalidKey { key, reason } if key == "order:" && reason.contains("empty"))
        );
        let long = "k".repeat(MAX_BYTES);
        assert_eq!(text(format_args!("{}", segment(&long))).len(), MAX_BYTES);
        let longer = render(format_args!("{}:", segment(&long))).unwrap_err();
        assert!(
            matches!(&longer, LockError::InvalidKey { reason, .. } if reason.contains("longer")),
            "{longer}"
        );
    }

    #[test]
    fn several_keys_keep_their_order_and_the_first_bad_one_is_reported() {
        let names = |keys: Vec<LockKey>| keys.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(names(collected(["b", "a"])), ["b", "a"]);
        let one = |value: &str| render(format_args!("{}", segment(value)));
        assert_eq!(names(keys([one("b"), one("a")]).unwrap()), ["b", "a"]);
        assert!(keys([one("b"), one(""), one("a")]).is_err());
    }
}
