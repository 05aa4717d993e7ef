//! The actors of a run, and the random steps that they take.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use crate::Token;
use crate::domain::kind::Kind;
use crate::domain::names::Names;
use crate::domain::value::StoredValue;
use crate::store::memory::test_trouble::Trouble;
use crate::store::{Acquire, Command, Keep, Newest, Verb};

/// How long the answer to a step may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// An actor: it has a token, a kind of lock and the keys that it uses.
pub(super) struct Actor {
    pub(super) kind: Kind,
    pub(super) keys: &'static [&'static str],
    /// Whether its channel has a subscriber.
    pub(super) listens: bool,
}

pub(super) const fn actor(kind: Kind, keys: &'static [&'static str], listens: bool) -> Actor {
    Actor { kind, keys, listens }
}

pub(super) const fn permit(limit: u32, listens: bool) -> Actor {
    actor(Kind::Permit { limit }, &["k"], listens)
}

pub(super) const ALL: Kind = Kind::All { ordered: false };

#[derive(Clone, Debug)]
pub(super) enum ModelStep {
    Acquire {
        who: usize,
        ttl: u64,
        patient: bool,
        fair: bool,
        fenced: bool,
        slotted: bool,
        ordered: bool,
        most: Option<usize>,
        newest: Option<Newest>,
    },
    Take {
        who: usize,
        ttl: u64,
    },
    Renew {
        who: usize,
        ttl: u64,
    },
    Keep {
        who: usize,
        time: u64,
    },
    Check {
        who: usize,
    },
    Newer {
        who: usize,
    },
    Downgrade {
        who: usize,
    },
    Force {
        who: usize,
    },
    Release {
        who: usize,
        keep: Option<u64>,
        tombstone: bool,
    },
    Advance {
        millis: u64,
    },
    /// From now on the server refuses writes for this reason, or accepts them again.
    Refuse {
        trouble: Option<Trouble>,
    },
}

fn newest() -> impl Strategy<Value = Option<Newest>> {
    prop_oneof![2 => Just(None), 1 => Just(Some(Newest::First)), 1 => Just(Some(Newest::Later))]
}

pub(super) fn step(actors: usize) -> impl Strategy<Value = ModelStep> {
    let who = 0..actors;
    let ttl = || prop_oneof![Just(431_u64), Just(1_970), Just(7_330)];
    prop_oneof![
        8 => (who.clone(), ttl(), prop::bool::weighted(0.8), prop::bool::weighted(0.8), any::<bool>(), any::<bool>(), any::<bool>(), prop::option::weighted(0.3, 1..4_usize), newest())
            .prop_map(|(who, ttl, patient, fair, fenced, slotted, ordered, most, newest)| {
                let (most, newest) = (most.filter(|_| patient), newest.filter(|_| patient));
                ModelStep::Acquire { who, ttl, patient, fair, fenced, slotted, ordered, most, newest }
            }),
        1 => (who.clone(), ttl()).prop_map(|(who, ttl)| ModelStep::Take { who, ttl }),
        2 => (who.clone(), ttl()).prop_map(|(who, ttl)| ModelStep::Renew { who, ttl }),
        1 => (who.clone(), ttl()).prop_map(|(who, time)| ModelStep::Keep { who, time }),
        1 => who.clone().prop_map(|who| ModelStep::Check { who }),
        1 => who.clone().prop_map(|who| ModelStep::Newer { who }),
        2 => who.clone().prop_map(|who| ModelStep::Downgrade { who }),
        1 => who.clone().prop_map(|who| ModelStep::Force { who }),
        6 => (who, prop::option::weighted(0.1, ttl()), prop::bool::weighted(0.05))
            .prop_map(|(who, keep, tombstone)| ModelStep::Release { who, keep, tombstone }),
        1 => prop_oneof![2 => Just(None), 1 => Just(Some(Trouble::ReadOnly)), 1 => Just(Some(Trouble::NoReplicas))]
            .prop_map(|trouble| ModelStep::Refuse { trouble }),
        // Multiples of 13 ms, as no time of a step is, nor two of these together: nothing ends at the very moment of a
        // step, when a server still has what the model has not.
        2 => prop_oneof![Just(273_u64), Just(910), Just(2_626)].prop_map(|millis| ModelStep::Advance { millis }),
    ]
}

impl ModelStep {
    /// An acquisition that passes the queue, with no other option.
    pub(super) const fn unfair(who: usize, ttl: u64, patient: bool) -> Self {
        Self::Acquire {
            who,
            ttl,
            patient,
            fair: false,
            fenced: false,
            slotted: false,
            ordered: false,
            most: None,
            newest: None,
        }
    }

    /// The first question of a call that ends older ones.
    pub(super) const fn newest(who: usize, ttl: u64) -> Self {
        Self::Acquire {
            who,
            ttl,
            patient: true,
            fair: false,
            fenced: false,
            slotted: false,
            ordered: false,
            most: None,
            newest: Some(Newest::First),
        }
    }

    /// The actor and its verb; `None` when its kind of lock has no such verb.
    fn verb(&self, actors: &[Actor]) -> Option<(usize, Verb)> {
        let millis = Duration::from_millis;
        let place = millis(5_000);
        let kind = |who: usize| actors[who].kind;
        let asked = match *self {
            Self::Acquire { who, ttl, patient, fair, fenced, slotted, most, newest, .. } => {
                let queue = patient.then_some(place);
                let fences = if fenced { 32 } else { 0 };
                let (token, ttl) = (token(who), Some(millis(ttl)));
                // The holder of several keys is never asked to hand over, because such a lease does
                // not linger.
                let lingers =
                    actors.iter().all(|actor| actor.kind.is_pooled() == actor.kind.is_value());
                let asks = !patient && lingers && kind(who) == Kind::Mutex;
                let ask = asks.then_some(millis(200));
                let most_waiting = most.filter(|_| kind(who) != ALL);
                let newest = newest.filter(|_| kind(who) == Kind::Mutex);
                let asked = Acquire::of(token, ttl);
                let share = kind(who) == Kind::Mutex && shares(who).is_some();
                let slotted = slotted && kind(who).limit().is_some();
                let asked = Acquire { queue, fair, fences, slotted, ask, ..asked };
                let terms = Acquire { share, most_waiting, newest, ..asked };
                (who, Verb::Acquire(terms))
            }
            Self::Take { who, ttl } if kind(who) == Kind::Mutex => {
                (who, Verb::Take { token: token(who), ttl: Some(millis(ttl)) })
            }
            Self::Renew { who, ttl } => {
                (who, Verb::Renew { token: token(who), ttl: Some(millis(ttl)) })
            }
            Self::Keep { who, time } => (who, Verb::Keep { token: token(who), time: millis(time) }),
            Self::Check { who } => (who, Verb::Check { token: token(who) }),
            Self::Newer { who } if kind(who) == Kind::Mutex => {
                (who, Verb::Newer { token: token(who) })
            }
            Self::Downgrade { who } if kind(who) == Kind::Write => {
                (who, Verb::Downgrade { token: token(who) })
            }
            Self::Force { who } => {
                let tokens = vec![Token::from_wire(&token(who))];
                (who, Verb::Force { tokens, foreign: None, because: "it hangs".into() })
            }
            Self::Release { who, keep, tombstone } => {
                (who, released(who, kind(who), keep.map(millis), tombstone))
            }
            _ => return None,
        };
        Some(asked)
    }

    /// The command, and who sends it.
    pub(super) fn command(&self, actors: &[Actor]) -> Option<(Command, usize)> {
        let (who, verb) = self.verb(actors)?;
        let actor = &actors[who];
        let names = |key: &&str| Names::new("lock", format!("lock:{key}"));
        let (first, others) = actor.keys.split_first()?;
        let names = match actor.kind {
            Kind::All { .. } if !matches!(verb, Verb::Force { .. }) => {
                Names::together(names(first), others.iter().map(names).collect(), "")
            }
            _ => names(first),
        };
        let kind = match (actor.kind, self) {
            (_, Self::Force { .. }) => Kind::Mutex,
            (Kind::All { .. }, Self::Acquire { ordered, .. }) => Kind::All { ordered: *ordered },
            (kind, _) => kind,
        };
        // No answer is ever late here: the machine may stand still for a while.
        let timeout = PATIENCE;
        Some((Command { names, kind, verb, timeout }, who))
    }
}

/// The release by an actor, which keeps its lock for the time that is given, if any.
fn released(who: usize, kind: Kind, keep: Option<Duration>, tombstone: bool) -> Verb {
    let is_mutex = kind == Kind::Mutex;
    let keep = keep.map(|time| {
        let value = value(who).filter(|_| is_mutex);
        Keep { time, mark: mark(who), value }
    });
    let share = shares(who).filter(|_| is_mutex);
    Verb::Release {
        token: token(who),
        waited_for: false,
        keep,
        share: share.map(|value| (value, Duration::from_millis(1_310))),
        tombstone: tombstone.then_some(Duration::from_millis(3_300)),
    }
}

/// What takes the place of its token, when it has done something or keeps its lock.
pub(super) fn mark(who: usize) -> Arc<str> {
    format!("rl1={}.1f.{}", if who.is_multiple_of(2) { 'd' } else { 'k' }, token(who)).into()
}

/// What it shares with those who wait, if it does.
fn shares(who: usize) -> Option<StoredValue> {
    let shares = !who.is_multiple_of(2);
    shares.then(|| StoredValue::new(format!("{who}")).of_token(&token(who)))
}

/// What it stores, when it has done something.
fn value(who: usize) -> Option<StoredValue> {
    let stores = who.is_multiple_of(4);
    stores.then(|| StoredValue::new(format!("{who}")).of_token(&token(who)))
}

pub(super) fn token(who: usize) -> Arc<str> {
    // Two of each manager.
    // A capital is the sign of calls that end older ones.
    let flag = if who.is_multiple_of(2) { "" } else { "%s" };
    format!("rl1.A{who:031}.m{}.0.{flag}", who / 2).into()
}
