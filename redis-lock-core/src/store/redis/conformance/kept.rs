//! Sequences of steps that once showed a difference. They are run each time.

use super::{Actor, EACH_KIND, Kind, ModelStep, actor, on_every_server_once, permit};

#[test]
fn who_keeps_a_mutex_lets_nobody_in_and_nobody_out_of_the_queue() {
    on_every_server_once(
        EACH_KIND,
        &[
            ModelStep::unfair(3, 430, false),
            ModelStep::unfair(2, 430, true),
            ModelStep::Advance { millis: 910 },
            ModelStep::unfair(0, 1_970, false),
            ModelStep::Release { who: 0, keep: Some(430), tombstone: false },
            ModelStep::Check { who: 2 },
        ],
    );
}

#[test]
fn a_forced_release_lets_the_next_in_although_another_lease_has_ended() {
    static ACTORS: &[Actor] = &[permit(2, true), permit(2, true), permit(1, true)];
    on_every_server_once(
        ACTORS,
        &[
            ModelStep::unfair(0, 431, false),
            ModelStep::unfair(1, 1_970, false),
            ModelStep::unfair(2, 431, true),
            ModelStep::Advance { millis: 910 },
            ModelStep::Force { who: 1 },
        ],
    );
}

#[test]
fn who_keeps_a_mutex_wakes_no_waiter_whose_place_has_ended() {
    on_every_server_once(
        EACH_KIND,
        &[
            ModelStep::unfair(0, 7_330, false),
            ModelStep::unfair(1, 430, true),
            ModelStep::Advance { millis: 2_626 },
            ModelStep::Advance { millis: 2_626 },
            ModelStep::Release { who: 0, keep: Some(430), tombstone: false },
        ],
    );
}

#[test]
fn a_newer_call_wakes_no_waiter_whose_place_has_ended() {
    static ACTORS: &[Actor] = &[
        actor(Kind::Mutex, &["k"], true),
        actor(Kind::Mutex, &["k"], true),
        actor(Kind::Mutex, &["k"], true),
    ];
    on_every_server_once(
        ACTORS,
        &[
            ModelStep::unfair(0, 7_330, false),
            ModelStep::newest(1, 430),
            ModelStep::Advance { millis: 2_626 },
            ModelStep::Advance { millis: 2_626 },
            ModelStep::newest(2, 430),
        ],
    );
}
