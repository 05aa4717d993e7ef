//! Another program that writes whatever it likes to the keys of a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use testbed::in_own_process;

use crate::arena::{Arena, ms, take};

const NUMBERS: [&str; 9] = [
    "9007199254740992",
    "288230376151711744",
    "9223372036854775807",
    "18446744073709551616",
    "1e300",
    "inf",
    "-inf",
    "-1",
    "0",
];

/// Numbers in an order that is the same in each run.
struct Seeded(u64);

impl Seeded {
    fn below(&mut self, most: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % most
    }

    fn text(&mut self) -> Vec<u8> {
        let token = format!("rl1.{}.{}.0.", "a".repeat(32), "b".repeat(12));
        match self.below(6) {
            0 => NUMBERS[self.below(9)].into(),
            1 => format!("{} {token}", NUMBERS[self.below(9)]).into(),
            2 => vec![0xff, 0, b'\n', 0x1b],
            3 => token.into(),
            4 => format!("{token}{}", "x".repeat(200_000)).into(),
            _ => format!("r:{token}").into(),
        }
    }

    fn command(&mut self) -> redis::Cmd {
        let side = ["~q", "~w", "~f", "~n"][self.below(4)];
        let key =
            if self.below(4) == 0 { "lock:k".into() } else { format!("lock:{{lock:k}}:{side}") };
        let mut cmd = redis::Cmd::new();
        match self.below(5) {
            0 => cmd.arg("DEL").arg(key),
            1 => cmd.arg("SET").arg(key).arg(self.text()).arg("PX").arg(500),
            2 => cmd.arg("ZADD").arg(key).arg(NUMBERS[self.below(9)]).arg(self.text()),
            3 => cmd.arg("HSET").arg(key).arg(self.text()).arg(self.text()),
            _ => cmd.arg("LPUSH").arg(key).arg(self.text()),
        };
        cmd
    }
}

/// What this process uses: kilobytes of memory, threads, and descriptors.
fn used() -> [usize; 3] {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let field = |name: &str| {
        let rest = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        rest.split_whitespace().next().unwrap().parse().unwrap()
    };
    [field("VmRSS:"), field("Threads:"), std::fs::read_dir("/proc/self/fd").unwrap().count()]
}

/// How much later than it should this process has woken from short sleeps at most. When it stands still for
/// as long as a lease, or the machine does, that lock is lost, whatever a tenant writes.
#[derive(Default)]
struct Stall(Arc<AtomicU64>);

impl Stall {
    /// Watches until the last other reference is gone.
    fn watch() -> Self {
        let watched = Self::default();
        let longest = Arc::downgrade(&watched.0);
        std::thread::spawn(move || {
            while let Some(longest) = longest.upgrade() {
                let slept = Instant::now();
                std::thread::sleep(ms(10));
                let late = slept.elapsed().saturating_sub(ms(10)).as_millis();
                longest.fetch_max(u64::try_from(late).unwrap_or(u64::MAX), Ordering::Relaxed);
            }
        });
        watched
    }

    fn longest(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

/// With `TENANT_SECONDS` it runs for so long in each setting. `cargo xtask tenants` does that.
#[test]
fn a_tenant_that_writes_anything_to_the_keys_of_a_lock_costs_no_other_lock() {
    let seconds = std::env::var("TENANT_SECONDS").ok().and_then(|text| text.parse().ok());
    // Other tests of this program would use memory and threads as well.
    in_own_process(|| {
        for arena in [Arena::server(), Arena::without_scripts()] {
            annoy(&arena, Duration::from_secs(seconds.unwrap_or(3)));
        }
    });
}

fn annoy(arena: &Arena, lasts: Duration) {
    let server = arena.server.as_ref().unwrap();
    let mut connection = server.client().get_connection().unwrap();
    let (ttl, stall) = (ms(5_000), Stall::watch());
    let other = take(arena.one.mutex("other").ttl(ttl));
    let (mut seeded, begun) = (Seeded(17), Instant::now());
    let (mut tried, mut early) = (0, None);
    while begun.elapsed() < lasts {
        for _ in 0..5 {
            // What stands there may be of another type.
            let _ = seeded.command().query::<redis::Value>(&mut connection);
        }
        // Whatever comes of it, it comes, and without a panic.
        let request = arena.one.mutex("k").fenced().wait(ms(20));
        if let Err(error) = request.blocking_acquire() {
            let text = error.to_string();
            assert!(text.len() < 4_000 && !text.chars().any(char::is_control), "{text:?}");
            assert!(!text.contains("this is a bug"), "{text}");
        }
        let _ = arena.one.blocking_status("k").map(|status| format!("{status:?}"));
        tried += 1;
        if begun.elapsed() > lasts / 3 {
            early.get_or_insert_with(used);
        }
    }
    assert!(tried > 10, "{}: {tried}", arena.name);
    let (held, stalled) = (other.ensure(Duration::ZERO), stall.longest());
    // A renewal is due after a third of the ttl.
    if held.is_err() && stalled >= ttl - ttl / 3 {
        println!("{}: lost, because this process stood still for {stalled:?}", arena.name);
        return;
    }
    assert!(
        held.is_ok(),
        "{}: {held:?}, and this process stood still for {stalled:?} at most",
        arena.name
    );
    other.blocking_release().unwrap();
    let (early, late) = (early.unwrap(), used());
    println!("{}: {tried} times; KB, threads, descriptors: {early:?}, later {late:?}", arena.name);
    for ((early, late), more) in early.into_iter().zip(late).zip([32_768, 8, 16]) {
        assert!(late <= early + more, "{}: {early} became {late}", arena.name);
    }
}
