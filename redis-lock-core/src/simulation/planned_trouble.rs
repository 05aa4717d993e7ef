//! What can go wrong in a history, as a plan says it.

/// Something that goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PlannedTrouble {
    /// A connection ends. What was on its way is executed so much later, or never.
    Cut {
        process: usize,
        late: Option<u64>,
    },
    HalfOpen {
        process: usize,
        late: Option<u64>,
    },
    /// Nothing passes for a while, then all of it.
    Stall {
        process: usize,
        lasts: u64,
    },
    /// The server does nothing for a while.
    Frozen {
        lasts: u64,
    },
    RefuseConnects {
        lasts: u64,
    },
    /// Attempts to connect get no answer.
    LoseConnects {
        lasts: u64,
    },
    Refuse {
        why: Refusal,
        lasts: u64,
    },
    Restart {
        keeps_data: bool,
        lasts: u64,
    },
    Flush,
    /// Keys beside that of a lock are lost: the queue, what is known of its waiters, or both.
    LoseSide {
        key: usize,
        queue: bool,
        waiters: bool,
    },
    ServerClock {
        forward: bool,
        by: u64,
    },
    /// The clock of one node.
    NodeClock {
        node: usize,
        forward: bool,
        by: u64,
    },
    Pause {
        process: usize,
        lasts: u64,
    },
    /// The machine of a process stands still, and its clock as well.
    StandStill {
        process: usize,
        lasts: u64,
    },
    /// The tasks of a process stand still, its engine does not.
    Block {
        process: usize,
        lasts: u64,
    },
    Kill {
        process: usize,
    },
    Fork {
        process: usize,
    },
    Shutdown {
        process: usize,
    },
    LoseHints {
        lasts: u64,
    },
    /// The subscription ends, and nothing else.
    Deafen {
        process: usize,
        lasts: u64,
    },
    Forge {
        process: usize,
    },
    /// The slot of a key moves to another node. It is half moved for a while, with so many of a
    /// hundred of what stands there at the other node already.
    MoveSlot {
        key: usize,
        to: usize,
        part: u64,
        lasts: u64,
    },
    /// The subscriptions at one node end, and nothing else.
    DeafenAt {
        node: usize,
        lasts: u64,
    },
    /// One node does nothing for a while.
    FrozenNode {
        node: usize,
        lasts: u64,
    },
    /// The first node of a shard leaves the map for a while, and the second one serves. It is asked
    /// to, or it does nothing any more and is replaced after so long.
    FailOver {
        shard: usize,
        after: Option<u64>,
        lasts: u64,
    },
    /// The nodes say that the cluster is down.
    ClusterDown {
        lasts: u64,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    ReadOnly,
    OutOfMemory,
    NoReplicas,
    Loading,
}

impl PlannedTrouble {
    /// How long it lasts by itself.
    pub(super) fn lasts(&self) -> u64 {
        self.clone().lasts_mut().map_or(0, |lasts| *lasts)
    }

    /// Whether all callers are served meanwhile as soon as without it, apart from the delay of a
    /// lost message.
    pub(super) fn is_harmless(&self) -> bool {
        matches!(self, Self::DeafenAt { .. })
    }

    pub(super) fn lasting(mut self, time: u64) -> Self {
        if let Some(lasts) = self.lasts_mut() {
            *lasts = time;
        }
        self
    }

    fn lasts_mut(&mut self) -> Option<&mut u64> {
        match self {
            Self::Stall { lasts, .. }
            | Self::Frozen { lasts }
            | Self::RefuseConnects { lasts }
            | Self::LoseConnects { lasts }
            | Self::Refuse { lasts, .. }
            | Self::Restart { lasts, .. }
            | Self::Pause { lasts, .. }
            | Self::StandStill { lasts, .. }
            | Self::Block { lasts, .. }
            | Self::LoseHints { lasts }
            | Self::MoveSlot { lasts, .. }
            | Self::DeafenAt { lasts, .. }
            | Self::FrozenNode { lasts, .. }
            | Self::FailOver { lasts, .. }
            | Self::ClusterDown { lasts }
            | Self::Deafen { lasts, .. } => Some(lasts),
            _ => None,
        }
    }
}
