//! `newest` under faults: no body begins before the one before it has ended, seen by an observer outside.
//!
//! Bodies tell that they came and left by datagrams to one socket, whose order is that of what happened.

use std::collections::BTreeMap;
use std::os::unix::net::UnixDatagram;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use testbed::{Server, continue_process, stop_process};

use super::Trial;
use super::callers::Caller;

const PROCESSES: usize = 6;

/// What the observer has seen.
#[derive(Default)]
struct Seen {
    /// How often each thing was told.
    counts: BTreeMap<String, u64>,
    /// Two bodies at once.
    overlaps: Vec<String>,
}

pub(super) fn run(time: Duration, seed: u64) -> Result<()> {
    let (server, dir) = (Server::start(), tempfile::tempdir()?);
    let path = dir.path().join("observer");
    let socket = UnixDatagram::bind(&path)?;
    let (ended, seen) = channel();
    thread::spawn(move || ended.send(observe(&socket)));
    let start = || Caller::start(Trial::Newest, &server.url(), Some(&path));
    let mut callers = (0..PROCESSES).map(|_| start()).collect::<Result<Vec<_>>>()?;
    let teller = UnixDatagram::unbound()?;
    teller.connect(&path)?;
    let (begun, mut random, mut faults) = (Instant::now(), seed, BTreeMap::<_, u64>::new());
    let mut below = |limit: u64| {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % limit
    };
    while begun.elapsed() < time {
        thread::sleep(Duration::from_millis(50 + below(300)));
        let (victim, lasts) =
            (below(PROCESSES as u64) as usize, Duration::from_millis(below(1_000)));
        let fault =
            ["stopped", "killed", "stopped", "cut off", "deafened", "full"][below(6) as usize];
        match fault {
            "stopped" => {
                stop_process(callers[victim].pid());
                thread::sleep(lasts);
                continue_process(callers[victim].pid());
            }
            "killed" => {
                let pid = callers[victim].pid();
                callers[victim].kill()?;
                teller.send(format!("died {pid}").as_bytes())?;
                callers[victim] = start()?;
            }
            "cut off" => drop(server.run::<u64>("CLIENT KILL TYPE normal")),
            "deafened" => drop(server.run::<u64>("CLIENT KILL TYPE pubsub")),
            _ => {
                server.run::<()>("CONFIG SET maxmemory 1");
                thread::sleep(lasts);
                server.run::<()>("CONFIG SET maxmemory 0");
            }
        }
        *faults.entry(fault).or_default() += 1;
    }
    drop(callers);
    teller.send(b"over")?;
    verdict(&seen, &faults)
}

fn verdict(seen: &Receiver<Result<Seen>>, faults: &BTreeMap<&str, u64>) -> Result<()> {
    let seen = seen.recv().context("the observer has panicked")??;
    println!("faults: {faults:?}");
    println!("bodies and calls: {:?}", seen.counts);
    let count = |what: &str| seen.counts.get(what).copied().unwrap_or(0);
    println!("two bodies at once: {}", seen.overlaps.len());
    if !seen.overlaps.is_empty() {
        bail!("{}", seen.overlaps.join("\n"));
    }
    if count("superseded") == 0 || count("ok") == 0 {
        bail!("nothing was tried");
    }
    Ok(())
}

/// Follows who is in its body until all is over.
fn observe(socket: &UnixDatagram) -> Result<Seen> {
    let (mut seen, mut inside, mut buffer) = (Seen::default(), None::<String>, [0; 64]);
    loop {
        let length = socket.recv(&mut buffer)?;
        let told = String::from_utf8_lossy(buffer.get(..length).unwrap_or_default()).into_owned();
        let Some((what, who)) = told.split_once(' ') else { return Ok(seen) };
        *seen.counts.entry(what.to_owned()).or_default() += 1;
        let is_inside = inside.as_deref() == Some(who);
        match what {
            "came" => {
                if let Some(other) = inside.replace(who.to_owned()) {
                    seen.overlaps.push(format!("{who} came while {other} was inside"));
                }
            }
            "left" | "died" if is_inside => inside = None,
            _ => {}
        }
    }
}
