//! Makes a shared string of several parts.

use std::cell::Cell;
use std::sync::Arc;

/// Longer texts are rare, so no room for them is kept.
const SHORT: usize = 192;

thread_local! {
    /// Room to put the parts together.
    static ROOM: Cell<String> = const { Cell::new(String::new()) };
}

/// The parts in one shared string. A short one costs one allocation; `concat` and the conversion of
/// its result would cost two.
pub(crate) fn shared_text(parts: &[&str]) -> Arc<str> {
    // A guard may be dropped after the thread-local storage of its thread.
    let mut text = ROOM.try_with(Cell::take).unwrap_or_default();
    for part in parts {
        text.push_str(part);
    }
    let shared = Arc::from(text.as_str());
    if text.capacity() <= SHORT * 2 {
        text.clear();
        let _ = ROOM.try_with(|room| room.set(text));
    }
    shared
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_texts_are_what_their_parts_say() {
        for length in [0, 1, SHORT - 4, SHORT - 3, SHORT * 3, 2] {
            let long = "x".repeat(length);
            let parts = ["", "ü", ":", &long];
            assert_eq!(*shared_text(&parts), *parts.concat(), "{length}");
        }
    }
}
