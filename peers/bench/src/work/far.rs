//! Pairs where the server is as far away as one in the same data centre.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::{Work, pair, pair_thread, pairs, pairs_runtimes};
use crate::delay_line::DelayLine;
use crate::goal::{Bound, Goal};
use crate::peer::{PeerId, with_peer};
use crate::sample::{Sample, quantile};
use crate::scene::Scene;

/// How long a round trip takes beyond the machine's own.
const ROUND_TRIP: Duration = Duration::from_micros(500);

pub(super) const PAIR: Work = Work {
    id: "far-pair",
    title: "Lock and unlock, one task, a round trip of 0.5 ms",
    what: "One task takes a free lock and gives it back, over and over: spawned on the runtime's \
           workers, inside `block_on` on the main thread, and on a current-thread runtime. A round \
           trip to the server takes 0.5 ms. For comparison there are two round trips of a plain \
           socket over the same delayed path.",
    metrics: pair::METRICS,
    peers: &[PeerId::Ours, PeerId::Bare, PeerId::BareNoDelay, PeerId::RoundTrips],
    need: None,
    rounds: (5, 3),
    goals: &[
        Goal::ours("p50", Bound::AtMostTimes(1.05, PeerId::BARE)),
        Goal::ours("main-p50", Bound::AtMostTimes(1.05, PeerId::BARE)),
        Goal::ours("current-p50", Bound::AtMostTimes(1.05, PeerId::BARE)),
    ],
    measure: |peer, scene| {
        let path = delayed(scene.server.port())?;
        match peer {
            PeerId::RoundTrips => round_trips(scene, path.port()),
            peer => with_peer!(peer, P => pair::measure::<P>(scene, path.url())),
        }
    },
};

pub(super) const THREAD: Work = Work {
    id: "far-thread",
    title: "Lock and unlock, a plain thread, a round trip of 0.5 ms",
    what: "The same by a plain thread without a runtime, compared with the driver's synchronous \
           client.",
    metrics: pair_thread::METRICS,
    peers: &[PeerId::Ours, PeerId::Bare],
    need: None,
    rounds: (5, 3),
    goals: &[Goal::ours("p50", Bound::AtMostTimes(1.2, &[PeerId::Bare]))],
    measure: |peer, scene| {
        let path = delayed(scene.server.port())?;
        pair_thread::measure(peer, scene, &path.url())
    },
};

pub(super) const OVER_TLS: Work = Work {
    id: "far-tls",
    title: "Lock and unlock over TLS, one task, a round trip of 0.5 ms",
    what: "The same over TLS, with a private authority.",
    metrics: pair::METRICS,
    peers: &[PeerId::Ours, PeerId::Bare],
    need: None,
    rounds: (5, 3),
    goals: &[
        Goal::ours("p50", Bound::AtMostTimes(1.05, &[PeerId::Bare])),
        Goal::ours("main-p50", Bound::AtMostTimes(1.05, &[PeerId::Bare])),
        Goal::ours("current-p50", Bound::AtMostTimes(1.05, &[PeerId::Bare])),
    ],
    measure: |peer, scene| {
        let (port, authority) = scene.tls()?;
        let path = delayed(port)?;
        let url = format!("rediss://127.0.0.1:{}", path.port());
        pair::over_tls(peer, scene, url, authority)
    },
};

pub(super) const ON_64: Work = Work {
    id: "far-64",
    title: "Lock and unlock, 64 tasks on 64 keys, a round trip of 0.5 ms",
    what: "Each of 64 tasks takes and releases a separate lock, as fast as it can.",
    metrics: pairs::METRICS,
    peers: &[PeerId::Ours, PeerId::Bare, PeerId::BareNoDelay, PeerId::Rslock],
    need: None,
    rounds: (5, 3),
    goals: &[Goal::ours("rate", Bound::AtLeastTimes(1.2, PeerId::BARE))],
    measure: |peer, scene| {
        let path = delayed(scene.server.port())?;
        with_peer!(peer, P => pairs::measure::<P>(scene, path.url(), 64))
    },
};

pub(super) const RUNTIMES: Work = Work {
    id: "far-64-runtimes",
    title: "Lock and unlock, 64 keys on 8 current-thread runtimes, a round trip of 0.5 ms",
    what: "The same by 8 tasks on each of 8 threads, each with a separate runtime.",
    metrics: pairs_runtimes::METRICS,
    peers: &[PeerId::Ours, PeerId::Bare, PeerId::BareNoDelay],
    need: None,
    rounds: (5, 3),
    goals: &[Goal::ours("rate", Bound::AtLeastTimes(1.0, PeerId::BARE))],
    measure: |peer, scene| {
        let path = delayed(scene.server.port())?;
        let (url, is_shared) = (path.url(), peer == PeerId::Ours);
        with_peer!(peer, P => pairs_runtimes::measure::<P>(scene, &url, is_shared))
    },
};

fn delayed(port: u16) -> Result<DelayLine> {
    DelayLine::to(port, ROUND_TRIP / 2)
}

/// Two `PING`s one after the other, as often as there is time.
fn round_trips(scene: &Scene<'_>, port: u16) -> Result<Sample> {
    let _apart = scene.apart()?;
    let mut socket = TcpStream::connect(("127.0.0.1", port))?;
    socket.set_nodelay(true)?;
    let (start, mut times, mut reply) = (Instant::now(), Vec::new(), [0; 7]);
    while start.elapsed() < scene.lasting(500, 250) {
        let before = Instant::now();
        for _ in 0..2 {
            socket.write_all(b"PING\r\n")?;
            socket.read_exact(&mut reply)?;
        }
        times.push(before.elapsed());
    }
    let (p50, p99) = (quantile(&mut times, 0.5), quantile(&mut times, 0.99));
    Ok([("p50", p50), ("p99", p99)].into())
}
