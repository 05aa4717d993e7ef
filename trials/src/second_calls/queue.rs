//! `queue = 1` under eight processes that call a thousand times a second each.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use testbed::Server;

use super::Trial;
use super::callers::Caller;

const PROCESSES: usize = 8;

/// Rounds of a second. After each one the last run must have read the last change, and nothing may be left.
pub(super) fn run(time: Duration) -> Result<()> {
    let server = Server::start();
    let url = server.url();
    let start = |_| Caller::start(Trial::Queue, &url, None);
    let mut callers = (0..PROCESSES).map(start).collect::<Result<Vec<_>>>()?;
    let line = Line::watch(&url)?;
    let (begun, mut rounds) = (Instant::now(), 0_u64);
    let (mut ran, mut crowded, mut slowest) = (0, 0, 0);
    while begun.elapsed() < time {
        callers.iter_mut().try_for_each(|caller| caller.tell("go"))?;
        for caller in &mut callers {
            let numbers = caller.hear_numbers()?;
            let [own, refused, millis] = numbers[..] else { bail!("{numbers:?}") };
            (ran, crowded, slowest) = (ran + own, crowded + refused, millis.max(slowest));
        }
        rounds += 1;
        let (changes, seen): (u64, u64) = server.run("MGET changes seen");
        if changes != seen {
            bail!("round {rounds}: {changes} changes, and the last run has read {seen}");
        }
        server.run::<()>("DEL seen changes");
        server.assert_clean();
    }
    let (looks, most) = line.end()?;
    println!(
        "{rounds} rounds of {PROCESSES} x {} calls: {ran} ran, {crowded} were refused; the slowest round took \
         {slowest} ms; each change was followed by a run, nothing was left",
        super::worker::CALLS
    );
    println!("the line at the server was looked at {looks} times, and had at most {most} places");
    if most > 1 {
        bail!("{most} calls waited");
    }
    Ok(())
}

/// Looks at the length of the line all the time.
struct Line {
    is_over: Arc<AtomicBool>,
    most: Arc<AtomicU64>,
    looking: thread::JoinHandle<Result<u64>>,
}

impl Line {
    fn watch(url: &str) -> Result<Self> {
        let mut connection = redis::Client::open(url)?.get_connection()?;
        let (is_over, most) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (over, seen) = (Arc::clone(&is_over), Arc::clone(&most));
        let looking = thread::spawn(move || {
            let mut looks = 0;
            while !over.load(Ordering::Relaxed) {
                let length: u64 =
                    redis::cmd("ZCARD").arg("lock:{lock:sync}:~q").query(&mut connection)?;
                seen.fetch_max(length, Ordering::Relaxed);
                looks += 1;
                thread::sleep(Duration::from_micros(300));
            }
            Ok(looks)
        });
        Ok(Self { is_over, most, looking })
    }

    /// How often it has looked, and the longest line.
    fn end(self) -> Result<(u64, u64)> {
        self.is_over.store(true, Ordering::Relaxed);
        match self.looking.join() {
            Ok(looks) => Ok((looks?, self.most.load(Ordering::Relaxed))),
            Err(_) => bail!("the look at the line has panicked"),
        }
    }
}
