//! Sequences that once showed a difference, and are run each time.

use super::{ALL, Actor, ModelStep, actor, on_every_server_once, permit};
use crate::domain::kind::Kind;

#[test]
fn who_keeps_a_mutex_lets_nobody_in_and_nobody_out_of_the_queue() {
    static ACTORS: &[Actor] = &[
        actor(Kind::Mutex, &["k"], true),
        actor(Kind::Mutex, &["k"], true),
        actor(Kind::Read, &["k"], true),
        actor(Kind::Write, &["k"], true),
        permit(2, true),
        actor(ALL, &["j", "k"], true),
    ];
    let acquire = |who, ttl, patient, fair| ModelStep::Acquire {
        who,
        ttl,
        patient,
        fair,
        fenced: false,
        ordered: false,
    };
    on_every_server_once(
        ACTORS,
        &[
            acquire(3, 430, false, false),
            acquire(2, 430, true, false),
            ModelStep::Advance { millis: 911 },
            acquire(0, 1_970, false, false),
            ModelStep::Release { who: 0, keep: Some(430), bury: false },
            ModelStep::Check { who: 2 },
        ],
    );
}
