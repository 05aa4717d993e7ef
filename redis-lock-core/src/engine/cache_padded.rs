//! Padding of values that many threads change, to keep them out of other values' cache lines.

use std::ops::Deref;

/// A value that shares no cache line with another one. Threads that change values in one cache line
/// would slow each other down.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct CachePadded<T>(T);

impl<T> CachePadded<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(value)
    }
}

impl<T> Deref for CachePadded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
