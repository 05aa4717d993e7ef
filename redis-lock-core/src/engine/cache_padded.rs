//! What threads change all the time, kept apart from what others read.

use std::ops::Deref;

/// A value that shares no cache line with another: two threads that change neighbours would wait for
/// each other as if they changed the same.
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
