//! Room for the key of the next request.
//!
//! Callers name a key by a text that they keep, and a request needs a copy. Mostly the same thread has
//! just done with the copy of the request before.

use std::cell::Cell;

/// Texts with more room are rare, and not kept.
const MOST: usize = 256;

thread_local! {
    static ROOM: Cell<String> = const { Cell::new(String::new()) };
}

/// A copy of the text, in the room that was left last.
pub(super) fn copied(text: &str) -> String {
    // A request may be made after the thread-local storage of its thread.
    let mut room = ROOM.try_with(Cell::take).unwrap_or_default();
    room.clear();
    room.push_str(text);
    room
}

/// Leaves the room of a text that nobody needs any more.
pub(super) fn leave(text: String) {
    if text.capacity() <= MOST {
        let _ = ROOM.try_with(|room| room.set(text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_what_was_copied_whatever_was_there_before() {
        for text in ["a long text that was there", "", "short", &"x".repeat(MOST * 2), "ü"] {
            let copy = copied(text);
            assert_eq!(copy, text);
            let other = copied("other");
            assert_eq!((&*copy, &*other), (text, "other"));
            leave(other);
            leave(copy);
        }
    }

    #[test]
    fn room_is_used_again_unless_there_is_too_much_of_it() {
        let text = String::with_capacity(MOST);
        let at = text.as_ptr();
        leave(text);
        let copy = copied("key");
        assert_eq!((copy.as_ptr(), &*copy), (at, "key"));
        leave(String::with_capacity(MOST + 1));
        assert!(copied("key").capacity() <= MOST);
    }
}
