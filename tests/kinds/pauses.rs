//! Holders that are stopped at random, for up to two and a half times their lease: with a margin, none
//! acts beside another as long as its pause was within the margin; without, some do.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{env, fmt, thread};

use redis_locks::Locks;
use testbed::{Child, ChildIo, Server};

use crate::arena::*;

const LEASE: Duration = ms(1_000);
const MARGIN: Duration = ms(2_000);
const LONGEST_PAUSE: u64 = 2_500;
const HOLDERS: u64 = 3;

/// A series of numbers that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn pause(&mut self, most: u64) {
        thread::sleep(ms(self.below(most)));
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros().try_into().unwrap()
}

fn variable(name: &str) -> u64 {
    env::var(name).unwrap().parse().unwrap()
}

/// Takes the lock again and again, and acts under it while the guard says that it is held.
pub(crate) fn actor(io: &mut ChildIo) {
    let locks = Locks::open(env::var("SERVER").unwrap()).unwrap();
    let mut random = Random(variable("SEED"));
    let (margin, end) = (ms(variable("MARGIN")), variable("END"));
    while now() < end {
        let guard = take(locks.mutex(margin.as_millis().to_string()).ttl(LEASE).margin(margin));
        let until = Instant::now() + ms(random.below(1_500));
        while Instant::now() < until {
            // Read before the guard is asked: a stop in between only shortens what it may claim.
            let began = now();
            let remaining = guard.remaining();
            if remaining.is_zero() {
                break;
            }
            thread::sleep(ms(20));
            let lease_ends = began + u64::try_from(remaining.as_micros()).unwrap();
            io.say(&format!("{began} {lease_ends} {}", now()));
        }
        drop(guard);
    }
    io.say("over");
}

/// Something that a holder did, in microseconds.
#[derive(Clone, Copy)]
struct Act {
    holder: u64,
    began: u64,
    lease_ends: u64,
    ended: u64,
}

/// What was seen of holders with the same margin.
#[derive(Debug, Default)]
struct Seen {
    acts: usize,
    /// Acts that were stopped for longer than their lease.
    outlived: usize,
    /// Others acted meanwhile, although the pause was within lease and margin.
    within: usize,
    /// Others acted meanwhile, and the pause was longer than that.
    beyond: usize,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { acts, outlived, within, beyond } = self;
        write!(
            f,
            "{acts} acts, {outlived} of them stopped beyond their lease; overlaps: {within} within \
             lease and margin, {beyond} beyond"
        )
    }
}

fn acts(holder: u64, child: &Child) -> Vec<Act> {
    let act = |line: &String| {
        let times: Vec<u64> = line.split(' ').map(|it| it.parse().unwrap()).collect();
        let [began, lease_ends, ended] = times.try_into().unwrap();
        Act { holder, began, lease_ends, ended }
    };
    child.heard().iter().map(act).collect()
}

fn seen(mut acts: Vec<Act>, margin: Duration) -> Seen {
    acts.sort_unstable_by_key(|act| act.began);
    let margin = u64::try_from(margin.as_micros()).unwrap();
    let mut seen = Seen { acts: acts.len(), ..Seen::default() };
    for (at, act) in acts.iter().enumerate() {
        seen.outlived += usize::from(act.ended > act.lease_ends);
        let meanwhile = acts[at + 1..].iter().take_while(|other| other.began < act.ended);
        let Some(other) = meanwhile.into_iter().find(|other| other.holder != act.holder) else {
            continue;
        };
        if other.began < act.lease_ends + margin { seen.within += 1 } else { seen.beyond += 1 }
    }
    seen
}

/// Stops each of some holders at random for so long, and returns what they did and how often they were
/// stopped.
fn stopped(server: &Server, margin: Duration, lasts: Duration, seed: u64) -> (Seen, usize) {
    let (until, end) = (Instant::now() + lasts, now() + u64::try_from(lasts.as_micros()).unwrap());
    let spawn = |holder| {
        let numbers = [u64::try_from(margin.as_millis()).unwrap(), end, seed + holder];
        let [margin, end, seed] = numbers.map(|number| number.to_string());
        let server = server.url();
        let variables = [("SERVER", &*server), ("MARGIN", &margin), ("END", &end), ("SEED", &seed)];
        Child::spawn("pauses_actor", &variables)
    };
    let stop = |holder| {
        let (mut child, mut random) = (spawn(holder), Random(seed * 31 + holder));
        let mut stops = 0;
        while Instant::now() < until {
            random.pause(1_500);
            child.freeze();
            random.pause(LONGEST_PAUSE);
            child.thaw();
            stops += 1;
        }
        child.expect("over");
        (acts(holder, &child), stops)
    };
    let outcomes: Vec<_> = thread::scope(|scope| {
        let stop = &stop;
        let holders: Vec<_> = (0..HOLDERS).map(|it| scope.spawn(move || stop(it))).collect();
        holders.into_iter().map(|holder| holder.join().unwrap()).collect()
    });
    let stops = outcomes.iter().map(|(_, stops)| stops).sum();
    (seen(outcomes.into_iter().flat_map(|(acts, _)| acts).collect(), margin), stops)
}

/// `PAUSES_SECONDS` sets another time.
#[test]
#[ignore = "it takes ten minutes; `cargo xtask ci slow-tests` runs it"]
fn only_without_a_margin_does_a_stopped_holder_act_beside_another() {
    let seconds = env::var("PAUSES_SECONDS").ok().and_then(|it| it.parse().ok());
    let lasts = Duration::from_secs(seconds.unwrap_or(600));
    let seed = now();
    let server = Server::start();
    let (with, without) = thread::scope(|scope| {
        let with = scope.spawn(|| stopped(&server, MARGIN, lasts, seed));
        let without = scope.spawn(|| stopped(&server, Duration::ZERO, lasts, seed + 100));
        (with.join().unwrap(), without.join().unwrap())
    });
    println!("seed {seed}, {} s", lasts.as_secs());
    for (name, (seen, stops)) in [("with a margin of 2 s", &with), ("without", &without)] {
        println!("{name}: {stops} stops, {seen}");
    }
    let ((with, _), (without, _)) = (with, without);
    assert_eq!(
        (with.within, without.within),
        (0, 0),
        "no holder acts beside a valid lease or margin"
    );
    assert!(with.outlived > 0 && without.beyond > 0, "the stops were long enough to matter");
}
