//! Sequences of steps that once showed a difference. They are run each time.

use super::{EACH_KIND, ModelStep, on_every_server_once};

#[test]
fn who_keeps_a_mutex_lets_nobody_in_and_nobody_out_of_the_queue() {
    on_every_server_once(
        EACH_KIND,
        &[
            ModelStep::unfair(3, 430, false),
            ModelStep::unfair(2, 430, true),
            ModelStep::Advance { millis: 911 },
            ModelStep::unfair(0, 1_970, false),
            ModelStep::Release { who: 0, keep: Some(430), tombstone: false },
            ModelStep::Check { who: 2 },
        ],
    );
}
