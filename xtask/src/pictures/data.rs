//! What the pictures show.

use super::Look::{Fails, Kept, Lease, Runs, Waits};
use super::{Bar, Lane, Lanes, Look, Move, Questions, State, States};

const fn bar(from: f64, to: f64, look: Look, text: &'static str) -> Bar {
    Bar { from, to, look, text }
}

const fn lane(name: &'static str, bars: &'static [Bar], end: (f64, &'static str)) -> Lane {
    Lane { name, bars, end }
}

pub(super) const LANES: &[Lanes] = &[
    Lanes {
        file: "options.svg",
        title: "Which option acts when",
        about: "wait acts before the lock is acquired; ttl, max_hold and min_hold from then on; linger after the release.",
        lanes: &[
            lane(
                "the call",
                &[bar(0.0, 20.0, Waits, "waits"), bar(20.0, 62.0, Runs, "body runs")],
                (63.0, "returns"),
            ),
            lane(
                "wait",
                &[bar(0.0, 20.0, Waits, "wait")],
                (21.0, "the longest wait for a busy lock"),
            ),
            lane(
                "ttl",
                &[bar(20.0, 40.0, Lease, "ttl"), bar(41.0, 62.0, Lease, "ttl, renewed")],
                (63.0, "the engine renews it while the body runs"),
            ),
            lane("max_hold", &[bar(20.0, 76.0, Kept, "max_hold")], (77.0, "the hold ends here")),
            lane(
                "min_hold",
                &[bar(20.0, 70.0, Kept, "min_hold")],
                (71.0, "the key stays until here"),
            ),
            lane("linger", &[bar(62.0, 80.0, Lease, "linger")], (81.0, "for the next call here")),
        ],
    },
    Lanes {
        file: "second-wait.svg",
        title: "wait = \"5s\": the second call waits its turn",
        about: "Call B waits while call A runs, then runs.",
        lanes: &[
            lane("call A", &[bar(5.0, 45.0, Runs, "runs")], (46.0, "Ok")),
            lane(
                "call B",
                &[bar(15.0, 45.0, Waits, "waits"), bar(45.0, 80.0, Runs, "runs")],
                (81.0, "Ok"),
            ),
        ],
    },
    Lanes {
        file: "second-skip.svg",
        title: "wait = \"none\", on_busy = …: the second call is skipped",
        about: "Call B finds the lock busy and returns the value of on_busy at once.",
        lanes: &[
            lane("call A", &[bar(5.0, 60.0, Runs, "runs")], (61.0, "Ok")),
            lane("call B", &[bar(20.0, 21.0, Fails, "")], (22.0, "the value of on_busy, at once")),
        ],
    },
    Lanes {
        file: "second-queue.svg",
        title: "queue = 1, on_busy = …: one call waits, the others are answered",
        about: "Call B waits. Call C, which would be second in line, is answered at once: B runs after C came.",
        lanes: &[
            lane("call A", &[bar(5.0, 40.0, Runs, "runs")], (41.0, "Ok")),
            lane(
                "call B",
                &[bar(12.0, 40.0, Waits, "waits"), bar(40.0, 75.0, Runs, "runs")],
                (76.0, "Ok"),
            ),
            lane(
                "call C",
                &[bar(25.0, 26.0, Fails, "")],
                (27.0, "the value of on_busy: B will run for it"),
            ),
        ],
    },
    Lanes {
        file: "second-newest.svg",
        title: "newest: the newest call wins",
        about: "Call B asks call A to leave; call C replaces B in line, and runs when the body of A has ended.",
        lanes: &[
            lane(
                "call A",
                &[bar(5.0, 30.0, Runs, "runs")],
                (31.0, "Superseded, when its body next yields"),
            ),
            lane("call B", &[bar(14.0, 24.0, Waits, "waits")], (25.0, "Superseded")),
            lane(
                "call C",
                &[bar(24.0, 30.0, Waits, ""), bar(30.0, 70.0, Runs, "runs")],
                (71.0, "Ok"),
            ),
        ],
    },
    Lanes {
        file: "second-share.svg",
        title: "share: waiting calls get the result of the one that runs",
        about: "Calls B and C wait while call A runs, and get its value. Their bodies do not run.",
        lanes: &[
            lane("call A", &[bar(5.0, 50.0, Runs, "runs")], (51.0, "Ok(value)")),
            lane("call B", &[bar(15.0, 50.0, Waits, "waits")], (51.0, "Ok(value), shared")),
            lane("call C", &[bar(32.0, 50.0, Waits, "waits")], (51.0, "Ok(value), shared")),
        ],
    },
    Lanes {
        file: "second-replay.svg",
        title: "once = \"24h\", replay: later calls get the stored result",
        about: "The server keeps the value of call A for the period. Call B gets it without running.",
        lanes: &[
            lane("call A", &[bar(5.0, 35.0, Runs, "runs")], (36.0, "Ok(value)")),
            lane(
                "server",
                &[bar(35.0, 92.0, Kept, "mark and value, until 24 h after the acquisition")],
                (93.0, ""),
            ),
            lane("call B", &[bar(60.0, 61.0, Runs, "")], (62.0, "Ok(value), replayed")),
        ],
    },
    Lanes {
        file: "second-once.svg",
        title: "once = \"24h\": later calls learn that it was done",
        about: "The server keeps a mark of the success of call A for the period. Call B gets Done.",
        lanes: &[
            lane("call A", &[bar(5.0, 35.0, Runs, "runs")], (36.0, "Ok")),
            lane(
                "server",
                &[bar(35.0, 92.0, Kept, "mark, until 24 h after the acquisition")],
                (93.0, ""),
            ),
            lane("call B", &[bar(60.0, 61.0, Fails, "")], (62.0, "Done, or the value of on_done")),
        ],
    },
    Lanes {
        file: "second-join.svg",
        title: "reentrant: the inner call joins",
        about: "The body of call A calls B under the same key. B runs inside the hold of A.",
        lanes: &[
            lane("call A", &[bar(5.0, 80.0, Runs, "runs")], (81.0, "Ok")),
            lane("call B, inside A", &[bar(25.0, 55.0, Runs, "runs")], (56.0, "Ok")),
        ],
    },
    Lanes {
        file: "night.svg",
        title: "A night of a job with once = \"24h\"",
        about: "Three machines start the job. The first run fails, the second succeeds, the third learns that it was done.",
        lanes: &[
            lane("machine 1", &[bar(3.0, 28.0, Fails, "runs, and fails")], (29.0, "Err")),
            lane(
                "machine 2",
                &[bar(5.0, 28.0, Waits, "waits"), bar(28.0, 58.0, Runs, "runs")],
                (59.0, "Ok"),
            ),
            lane("machine 3", &[bar(6.0, 58.0, Waits, "waits")], (59.0, "Done")),
            lane(
                "server",
                &[bar(58.0, 95.0, Kept, "mark, until 24 h after the acquisition")],
                (96.0, ""),
            ),
        ],
    },
    Lanes {
        file: "paused.svg",
        title: "A holder that is paused beyond its lease",
        about: "Holder 1 is paused while its lease ends. Holder 2 writes. The late write of holder 1 lands without a fence, and is refused with one.",
        lanes: &[
            lane(
                "holder 1, fence 7",
                &[
                    bar(3.0, 20.0, Runs, "runs"),
                    bar(20.0, 72.0, Kept, "paused"),
                    bar(72.0, 76.0, Fails, ""),
                ],
                (77.0, "writes, then learns Lost"),
            ),
            lane("lease of 1", &[bar(3.0, 40.0, Lease, "lease")], (41.0, "")),
            lane("holder 2, fence 8", &[bar(40.0, 62.0, Runs, "runs, writes")], (63.0, "")),
            lane(
                "plain store",
                &[bar(60.0, 74.0, Runs, "write of 2"), bar(74.0, 75.0, Fails, "")],
                (76.0, "overwritten by 1"),
            ),
            lane(
                "fenced store",
                &[bar(60.0, 98.0, Runs, "write of 2: number 7 is refused")],
                (99.0, ""),
            ),
        ],
    },
];

pub(super) const CHOOSING: Questions = Questions {
    file: "choosing.svg",
    title: "Which kind of lock",
    about: "A list of questions that ends with a mutex.",
    questions: &[
        ("Is it one row of one database?", "no lock: a unique index or", "SELECT … FOR UPDATE"),
        ("Several things at once?", "keys = [..]", "locks.all"),
        ("May several work at a time?", "permits = n", "a semaphore"),
        ("Do many read, and few write?", "read / write", "RwLock"),
        ("Does one process lead for long?", "locks.mutex(..).lead", "leader election"),
        (
            "Must it succeed once for each date?",
            "key = \"job:{date}\", once = \"24h\"",
            "a mutex that remembers success",
        ),
        (
            "Is it a job that several machines start?",
            "wait = \"none\", min_hold",
            "a mutex that is kept",
        ),
        (
            "Should a second call do anything but wait?",
            "wait, on_busy, queue, newest, share, once, replay, reentrant",
            "see \"What should a second call do?\"",
        ),
    ],
    last: ("key = \"order:{id}\"", "a mutex"),
};

pub(super) const GUARD: States = States {
    file: "guard.svg",
    title: "The states of a guard",
    about: "A guard is Held, and Uncertain after a missed renewal. It ends as a token, as Released or as Lost.",
    frame: (170, 44, 540, 78),
    states: &[
        State { at: (190, 66), look: Runs, name: "Held", below: "is_held() is true" },
        State { at: (540, 66), look: Waits, name: "Uncertain", below: "is_held() is still true" },
        State { at: (60, 206), look: Lease, name: "a token", below: "another process adopts it" },
        State {
            at: (365, 206),
            look: Kept,
            name: "Released",
            below: "the next waiter gets the lock",
        },
        State { at: (600, 206), look: Fails, name: "Lost", below: "final, and the caller is told" },
    ],
    moves: &[
        Move { from: (40, 78), to: (187, 78), text: "acquire, adopt", at: (95, 70) },
        Move { from: (340, 72), to: (537, 72), text: "a renewal is missed", at: (438, 62) },
        Move { from: (540, 86), to: (343, 86), text: "a renewal is confirmed", at: (438, 103) },
        Move { from: (230, 122), to: (150, 203), text: "detach", at: (162, 164) },
        Move { from: (440, 122), to: (440, 203), text: "release, complete, drop", at: (365, 164) },
        Move {
            from: (640, 122),
            to: (675, 203),
            text: "lease over, key gone or taken,",
            at: (548, 156),
        },
        Move { from: (640, 122), to: (675, 203), text: "max_hold, shutdown", at: (574, 172) },
    ],
};
