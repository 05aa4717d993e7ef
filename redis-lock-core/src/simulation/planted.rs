//! Faults that are put back where they once were, to see that the simulation finds them.

use std::cell::Cell;

/// What can be put back. The names are those of `tests/CASES.md`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// Answers are taken for the open question whatever they answer, also those of dropped ones.
    E1,
    /// A lease is counted by what the first waiter wants, not by what was asked for.
    E2,
    /// What waits for a connection goes out in another order.
    E4,
    /// A renewal sets the lease, instead of lengthening it.
    E7,
    /// No timer is set for a lock that is waited for.
    E8,
    /// A limit that is passed closes the connection, although it speaks.
    E9,
    /// Tokens are not taken out of the index.
    E10,
    /// A shutdown does not wait for its releases.
    E11,
    /// After a try of unknown outcome, somebody else's token is taken for a loss.
    E12,
    /// Releases that nobody waits for go out later than what was asked after them.
    E14,
    /// Each try to release has a time limit of its own.
    E15,
    /// One who doesn't wait gets what the next look finds.
    E16,
    /// The server says "busy" where it should refuse.
    P3,
    /// A buried token is let in.
    P8,
    /// A token that asks without a place stays in the queue.
    P9,
    /// A renewal is counted from its answer.
    T1,
    /// A release forgets that an earlier try may have done it.
    T7,
    /// An abandoned attempt is not buried.
    T11,
    /// What was lost by time is not released.
    T12,
    /// A lease is handed on whatever the next one wants.
    T13Terms,
    /// A lease is handed on however little is left of it.
    T13Freshness,
}

impl Fault {
    pub(crate) const ALL: [Self; 21] = [
        Self::E1,
        Self::E2,
        Self::E4,
        Self::E7,
        Self::E8,
        Self::E9,
        Self::E10,
        Self::E11,
        Self::E12,
        Self::E14,
        Self::E15,
        Self::E16,
        Self::P3,
        Self::P8,
        Self::P9,
        Self::T1,
        Self::T7,
        Self::T11,
        Self::T12,
        Self::T13Terms,
        Self::T13Freshness,
    ];

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fault| format!("{fault:?}") == name)
    }
}

thread_local! {
    static PLANTED: Cell<Option<Fault>> = const { Cell::new(None) };
}

/// Whether this fault is planted on this thread.
pub(crate) fn is(fault: Fault) -> bool {
    PLANTED.get() == Some(fault)
}

/// Plants a fault on this thread, or none.
pub(crate) fn plant(fault: Option<Fault>) {
    PLANTED.set(fault);
}
