//! What happens to leases that linger, for metrics.

/// Something that happened to a lease that lingers, or that was asked for because it may.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IdleEvent {
    /// The last guard was dropped, and the lease stays.
    Began,
    /// The next call here took it without a command.
    TakenAgain,
    Ended(IdleEnd),
    /// Another process, whose lease may be idle, was asked to hand over.
    Asked(AskOutcome),
}

/// Why a lease no longer lingers, apart from being taken again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IdleEnd {
    /// Its `linger` time is over.
    Over,
    /// Another process wants the lock.
    Asked,
    /// A caller of this process wants it with other options.
    Terms,
    /// Too many leases linger.
    Limit,
    /// The connection, the subscription or the lease itself was lost.
    Trouble,
    Shutdown,
}

/// The answer of a holder that may be idle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AskOutcome {
    HandedOver,
    /// The lock is in use.
    InUse,
    /// No answer came in time.
    Silent,
}
