//! The works that every library is put to.

mod crash;
mod drain;
mod far;
mod hand_over;
mod held;
mod hot_key;
mod hot_processes;
mod linger;
mod pair;
mod pair_thread;
mod pairs;
mod pairs_runtimes;
mod permit_waiters;
mod quorum;
mod wake;

use anyhow::Result;

use crate::goal::Goal;
use crate::peer::{Need, PeerId};
use crate::sample::{Metric, Sample};
use crate::scene::Scene;

/// A task that every library is measured with.
pub(crate) struct Work {
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    /// What is done, in a sentence or two.
    pub(crate) what: &'static str,
    /// The first one is what the plot shows.
    pub(crate) metrics: &'static [Metric],
    pub(crate) peers: &'static [PeerId],
    pub(crate) need: Option<Need>,
    /// How many rounds a full run takes, and a quick one.
    pub(crate) rounds: (usize, usize),
    pub(crate) goals: &'static [Goal],
    /// One round of one library.
    pub(crate) measure: fn(PeerId, &Scene<'_>) -> Result<Sample>,
}

pub(crate) const ALL: &[Work] = &[
    far::PAIR,
    far::THREAD,
    far::OVER_TLS,
    far::ON_64,
    far::RUNTIMES,
    pair::WORK,
    pair_thread::WORK,
    pair::OVER_UNIX,
    pair::OVER_TLS,
    pairs::ON_64,
    pairs_runtimes::WORK,
    pairs::ON_512,
    hot_key::WORK,
    hot_processes::WORK,
    hand_over::WORK,
    drain::WORK,
    wake::WORK,
    crash::WORK,
    linger::AGAIN,
    linger::ASKED,
    linger::APART,
    held::WORK,
    held::LARGE,
    permit_waiters::WORK,
    pair::ON_CLUSTER,
    pairs::ON_CLUSTER,
    hand_over::ON_CLUSTER,
    pair::ON_REPLICA,
    quorum::PAIR,
    quorum::PAIRS,
    quorum::HOT,
    quorum::DOWN,
];

/// What this program does when it is started by itself.
pub(crate) const ROLES: &[(&str, testbed::Role)] = &[
    (hot_processes::ROLE, hot_processes::play),
    (hand_over::ROLE, hand_over::play),
    (crash::ROLE, crash::play),
    (held::ROLE, held::play),
    (linger::KEEPER, linger::keep),
    (linger::APART_ROLE, linger::play),
    (permit_waiters::ROLE, permit_waiters::play),
];
