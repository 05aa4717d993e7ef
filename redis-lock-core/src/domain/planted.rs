//! Faults that are put back where they once were, to see that the simulation finds them.

use std::cell::Cell;

/// The faults that can be put back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PlantedFault {
    /// Every answer is taken for that of the open question, also the answer to a question that was
    /// dropped.
    AnyAnswer,
    /// A lease is counted by what the first waiter wants, not by what was asked for.
    WaitersTtl,
    /// Questions that wait for a connection are sent in another order.
    QueueReversed,
    /// A renewal sets the lease, instead of lengthening it.
    RenewalSets,
    /// No timer is set for a lock that is waited for.
    NoTimer,
    /// A question over its time limit closes the connection, although other answers arrive on it.
    LimitCloses,
    /// Tokens are not taken out of the index.
    IndexKept,
    /// A shutdown does not wait for its releases.
    HastyShutdown,
    /// After a release of unknown outcome, finding another holder's token is taken for a loss.
    OthersTokenIsLoss,
    /// Releases without a waiting caller are sent later than the questions that followed them.
    LateReleases,
    /// Each try to release starts a new time limit.
    FreshDeadlines,
    /// A caller that doesn't wait is answered by the next look.
    NextLook,
    /// The server says "busy" where it should refuse.
    BusyForReadOnly,
    /// A tombstone does not refuse its token.
    TombstoneIgnored,
    /// A token joins a queue in which too many wait for it.
    CrowdNotRefused,
    /// A later question of a call ends newer calls.
    OlderSupersedes,
    /// A token that asks without a place stays in the queue.
    PlaceKept,
    /// A renewal is counted from its answer.
    RenewedFromAnswer,
    /// A release forgets that an earlier try may have released the token already.
    TryForgotten,
    /// No tombstone is left for an abandoned attempt.
    NoTombstone,
    /// A hold whose lease ran out is not released.
    LapsedNotReleased,
    /// A hold whose lease ran out is released, although its margin has not passed.
    LapsedWithMargin,
    /// A lapsed hold is released after the questions of the same step.
    LapsedBehind,
    /// A lease is handed on whatever the next one wants.
    AnyTerms,
    /// A lease is handed on however little is left of it.
    StaleHandedOn,
    /// An "ok" counts however late it comes, although its server may have been replaced.
    LateOkCredited,
    /// A renewal declares a second key, so that it is refused while its slot is half moved.
    TwoKeyRenew,
    /// Commands that were written behind a redirected one are sent again as well.
    BatchRedirected,
    /// The messages of one node are relied on for locks of another, so that a waiter which gets
    /// none waits for them.
    CountedElsewhere,
    /// A waiter that a message names does not ask.
    HintNotFollowed,
    /// No lease is renewed.
    NotRenewed,
    /// A write to the lock's own key that finds nothing counts as done.
    NothingFoundIsDone,
    /// The mark turns a value that is not text into text. This fault and the next one have their own
    /// tests.
    BytesMadeText,
    /// A forced release of a foreign value ends what was shown, not the present value.
    ShownIsForced,
    /// A fencing counter continues from any number. This fault and the next one have their own tests.
    FenceUnbounded,
    /// A sentinel that was named once is remembered for ever.
    SentinelsKept,
    /// A full server that refuses the key which is written before replicas are waited for confirms nothing,
    /// although the key exists.
    MarkerRefused,
    /// A timer that is set again also stays where it was.
    TimersKept,
    /// A token that is given away does not tell that it is in doubt.
    DoubtNotPassedOn,
    /// A detached token does not record a cut that may still be executed. Its own histories delay the
    /// cut at that moment.
    CutNotPassedOn,
    /// The holder of an idle lease gets only one message that a client waits. In its own history the
    /// first waiter can't send one.
    AskedOnce,
    /// A value is shared with calls that came after the end of its run was known.
    SharedWithLate,
    /// A permit gets the first slot, although another holder has it.
    SlotTwice,
    /// A waiter that was held back behind others of its process does not come forward when one of them
    /// leaves. In its own history they give up.
    StaysBehind,
    /// The release of a token ends the mark that took its place.
    MarkReleased,
    /// A complete of unknown outcome is repeated as a release.
    CompleteReleased,
    /// A mark is written without its value.
    ValueForgotten,
    /// A task that reads ends, and the engine does not get the role of the reader back.
    RoleKept,
    /// The engine is not woken when it gets the role back from a task that ends.
    EngineNotWoken,
    /// The engine does not take the role back from a task that does not read.
    RoleNotTakenBack,
    /// The task that reads is not woken for what other tasks have put on the queue.
    ReaderNotWoken,
    /// A node of a quorum votes although it has just started.
    YoungVote,
    /// A node of a quorum votes although its clock runs fast.
    FastVote,
    /// A client does not read the `rejoin` of other clients.
    RejoinUnread,
    /// A quorum counts the nodes that it reaches, instead of all.
    MajorityOfReached,
    /// A repair of a quorum's node counts as its confirmation.
    RepairCounts,
    /// What an attempt that failed has of a quorum's nodes is not given back.
    LoserKept,
    /// A vote of a quorum's node that comes after the decision is given back.
    WinnerUndone,
    /// A node's vote counts although a release of the token, which was not answered, may still arrive.
    UndoForgotten,
    /// A fencing number of a quorum is known to the node that gave it alone.
    FenceOfOne,
    /// A reader that was a writer is not brought back to a node while its downgrade is asked again.
    ReaderStaysAway,
    /// The engine of a quorum's client is not woken for what arrives from the first node.
    NodeUnwatched,
}

impl PlantedFault {
    pub(crate) const ALL: [Self; 44] = [
        Self::AnyAnswer,
        Self::WaitersTtl,
        Self::QueueReversed,
        Self::RenewalSets,
        Self::NoTimer,
        Self::LimitCloses,
        Self::IndexKept,
        Self::HastyShutdown,
        Self::OthersTokenIsLoss,
        Self::LateReleases,
        Self::FreshDeadlines,
        Self::NextLook,
        Self::BusyForReadOnly,
        Self::TombstoneIgnored,
        Self::PlaceKept,
        Self::CrowdNotRefused,
        Self::OlderSupersedes,
        Self::RenewedFromAnswer,
        Self::TryForgotten,
        Self::NoTombstone,
        Self::LapsedNotReleased,
        Self::LapsedWithMargin,
        Self::LapsedBehind,
        Self::AnyTerms,
        Self::StaleHandedOn,
        Self::LateOkCredited,
        Self::TwoKeyRenew,
        Self::BatchRedirected,
        Self::CountedElsewhere,
        Self::HintNotFollowed,
        Self::DoubtNotPassedOn,
        Self::NothingFoundIsDone,
        Self::MarkReleased,
        Self::CompleteReleased,
        Self::ValueForgotten,
        Self::NotRenewed,
        Self::MarkerRefused,
        Self::TimersKept,
        Self::RoleKept,
        Self::EngineNotWoken,
        Self::RoleNotTakenBack,
        Self::ReaderNotWoken,
        Self::SharedWithLate,
        Self::SlotTwice,
    ];

    /// Whether it shows only where tasks read.
    pub(crate) fn is_of_readers(self) -> bool {
        use PlantedFault::{EngineNotWoken, ReaderNotWoken, RoleKept, RoleNotTakenBack};
        matches!(self, RoleKept | EngineNotWoken | RoleNotTakenBack | ReaderNotWoken)
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fault| format!("{fault:?}") == name)
    }
}

thread_local! {
    static PLANTED: Cell<Option<PlantedFault>> = const { Cell::new(None) };
}

/// Whether this fault is planted on this thread.
pub(crate) fn is(fault: PlantedFault) -> bool {
    PLANTED.get() == Some(fault)
}

/// Plants a fault on this thread, or none.
pub(crate) fn plant(fault: Option<PlantedFault>) {
    PLANTED.set(fault);
}
