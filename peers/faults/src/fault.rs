use std::time::Duration;

use anyhow::{Context, Result};

/// What goes wrong in a cell.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Fault {
    Contention,
    LongBody,
    Pause,
    LateReply,
    CutAfterWrite,
    FailOver,
    Restart,
    ClockJump,
}

impl Fault {
    pub(crate) const ALL: [Self; 8] = [
        Self::Contention,
        Self::LongBody,
        Self::Pause,
        Self::LateReply,
        Self::CutAfterWrite,
        Self::FailOver,
        Self::Restart,
        Self::ClockJump,
    ];

    pub(crate) fn named(id: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|fault| fault.id() == id);
        found.with_context(|| format!("there is no fault `{id}`"))
    }

    pub(crate) fn id(self) -> &'static str {
        match self {
            Self::Contention => "contention",
            Self::LongBody => "long-body",
            Self::Pause => "pause",
            Self::LateReply => "late-reply",
            Self::CutAfterWrite => "cut-after-write",
            Self::FailOver => "fail-over",
            Self::Restart => "restart",
            Self::ClockJump => "clock-jump",
        }
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Contention => "Contention, and nothing else",
            Self::LongBody => "A body that takes longer than the ttl",
            Self::Pause => "A holder that is paused beyond its lease",
            Self::LateReply => "Replies later than the client's time limit",
            Self::CutAfterWrite => "A connection that is cut after the write",
            Self::FailOver => "A primary that fails over",
            Self::Restart => "A restart without persistence",
            Self::ClockJump => "A server clock that jumps",
        }
    }

    pub(crate) fn what(self) -> &'static str {
        match self {
            Self::Contention => "Bodies of 10 ms.",
            Self::LongBody => "Bodies of 2.5 s under a ttl of 1 s.",
            Self::Pause => {
                "`SIGSTOP` to the process that holds the lock, for 1.6 s under a ttl of 1 s, twice \
                 a round."
            }
            Self::LateReply => {
                "For 1.2 s every reply arrives 900 ms late, and one command may take 400 ms; \
                 twice a round."
            }
            Self::CutAfterWrite => {
                "Every 150 ms the next command is executed, and its connection is cut instead of \
                 the reply."
            }
            Self::FailOver => {
                "The first server's replica gets nothing for 1.2 s; then the server dies while the \
                 lock is held, and its replica takes its place; twice a round."
            }
            Self::Restart => {
                "The first server dies while the lock is held, and comes back empty; twice a round."
            }
            Self::ClockJump => {
                "The first server's wall clock jumps ahead by 5 s while the lock is held, twice, and \
                 back by 10 s."
            }
        }
    }

    /// How long a body works.
    pub(crate) fn body(self) -> Duration {
        Duration::from_millis(match self {
            Self::Contention => 10,
            Self::LongBody => 2_500,
            Self::FailOver | Self::Restart | Self::ClockJump => 300,
            _ => 60,
        })
    }

    /// Whether something is caused at certain moments.
    pub(crate) fn has_moments(self) -> bool {
        !matches!(self, Self::Contention | Self::LongBody)
    }
}
