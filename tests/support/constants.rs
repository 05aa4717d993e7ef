//! Keys and times that all groups of tests share, each with one meaning.

use std::time::Duration;

/// The key that most tests lock, and what it is on the server.
pub const KEY: &str = "job";
pub const WIRE: &str = "lock:job";

/// The queue of those who wait for [`KEY`], on the server.
pub const QUEUE: &str = "lock:{lock:job}:~q";

/// A waiter that no message reaches looks after three quarters of a second at the earliest, of which
/// a test may have watched it for a part: what takes less than this came by a message.
pub const NOTIFIED: Duration = ms(500);

/// Within this time a waiter looks by itself, whatever messages it gets.
pub const LOOK: Duration = ms(1_250);

/// How long the place of a dead waiter lasts in a queue.
pub const PLACE: Duration = ms(5_000);

pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
