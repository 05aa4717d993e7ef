//! How long tokens stayed at a key.

use std::sync::Arc;

/// How a token left the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Left {
    Released,
    Expired,
    Taken,
}

/// A token at a key, and until when.
#[derive(Clone, Debug)]
pub(super) struct Stay {
    pub(super) token: Arc<str>,
    pub(super) until: Option<u64>,
    /// When its lease ends, in true time.
    pub(super) end: u64,
}

/// Forgets the first of those that have left, when there are many.
pub(super) fn forget_oldest(stays: &mut Vec<Stay>) {
    if stays.len() <= 48 {
        return;
    }
    let surplus = stays.len() - 32;
    let mut index = 0;
    stays.retain(|stay| {
        index += 1;
        stay.until.is_none() || index > surplus
    });
}
