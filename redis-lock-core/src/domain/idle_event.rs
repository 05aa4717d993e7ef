//! What happens to leases that linger, for whoever counts.

/// Something that happened to a lease that lingers, or may.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IdleEvent {
    /// Nobody is inside any more, and the lease stays.
    Began,
    /// The next call here took it without a command.
    TakenAgain,
    Ended(IdleEnd),
    /// A holder elsewhere that may be idle was asked for its lease.
    Asked(AskOutcome),
}

/// Why a lease does not linger any longer, other than by being taken again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IdleEnd {
    /// Its time is over.
    Over,
    /// Somebody elsewhere wants the lock.
    Asked,
    /// Somebody here wants it in other terms.
    Terms,
    /// There are too many.
    Limit,
    /// The connection, the messages or the lease itself are gone.
    Trouble,
    Shutdown,
}

/// What came of asking a holder that may be idle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AskOutcome {
    HandedOver,
    /// Somebody is inside.
    InUse,
    /// No answer came in time.
    Silent,
}

/// What a lease shows of the use of its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KeyUse {
    /// Another process wanted it before it was used a second time.
    AskedAwayUnused,
    /// It has been used often.
    Used,
}
