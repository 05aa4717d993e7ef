//! Makes a shared string of several parts.

use std::sync::Arc;

/// Longer texts are rare.
const SHORT: usize = 192;

/// The parts in one shared string. A short one costs one allocation; `concat` and the conversion of
/// its result would cost two.
pub(crate) fn shared_text(parts: &[&str]) -> Arc<str> {
    let mut buffer = [0; SHORT];
    match written(parts, &mut buffer) {
        Some(text) => text.into(),
        None => parts.concat().into(),
    }
}

/// `None` when there is too little room.
fn written<'a>(parts: &[&str], buffer: &'a mut [u8]) -> Option<&'a str> {
    let mut length = 0;
    for part in parts {
        let end = length + part.len();
        buffer.get_mut(length..end)?.copy_from_slice(part.as_bytes());
        length = end;
    }
    std::str::from_utf8(buffer.get(..length)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_texts_are_what_their_parts_say() {
        for length in [0, 1, SHORT - 4, SHORT - 3, SHORT * 3] {
            let long = "x".repeat(length);
            let parts = ["", "ü", ":", &long];
            assert_eq!(*shared_text(&parts), *parts.concat(), "{length}");
        }
    }
}
