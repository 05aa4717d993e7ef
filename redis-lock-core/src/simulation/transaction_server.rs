//! What a server without scripts has, and which commands are no transactions there.

use super::key_space::KeySpace;
use crate::store::Verb;

/// A server that is used without scripts.
#[derive(Default)]
pub(super) struct TransactionServer {
    pub(super) keys: KeySpace,
    /// Whether a transaction is aborted when a watched key has expired, as from Redis 6.0.9 on.
    pub(super) notices_expiry: bool,
    /// Whether it queues what needs no memory when it is full, as Valkey 9 does and Redis does not.
    pub(super) queues_when_full: bool,
}

/// Whether a command is no transaction where there are no scripts.
pub(super) fn goes_on_link(verb: &Verb) -> bool {
    matches!(
        verb,
        Verb::Take { .. }
            | Verb::Why { .. }
            | Verb::InUse { .. }
            | Verb::Ping
            | Verb::Probe
            | Verb::Scan { .. }
            | Verb::Fetch
    )
}
