//! A hundred calls with `newest` a second: nothing grows.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use testbed::Server;

use super::Trial;
use super::callers::Caller;

/// Each calls 25 times a second.
const PROCESSES: usize = 4;

/// Before it nothing is compared: buffers grow to their size.
const WARM: Duration = Duration::from_secs(10);

/// What must not grow.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    connections: u64,
    server_kib: u64,
    processes_kib: u64,
}

pub(super) fn run(time: Duration) -> Result<()> {
    let server = Server::start();
    let url = server.url();
    let start = |_| Caller::start(Trial::Steady, &url, None);
    let mut callers = (0..PROCESSES).map(start).collect::<Result<Vec<_>>>()?;
    let (begun, mut first) = (Instant::now(), None);
    let (mut longest, mut pending) = (0, 0);
    while begun.elapsed() < WARM + time {
        thread::sleep(Duration::from_millis(20));
        let places: [u64; 2] =
            ["q", "l"].map(|it| server.run(&format!("ZCARD lock:{{lock:preview}}:~{it}")));
        longest = longest.max(places[0]).max(places[1]);
        if first.is_none() && begun.elapsed() > WARM {
            first = Some(sizes(&server, &callers)?);
        }
    }
    let (mut ended, mut superseded) = (0, 0);
    for caller in &mut callers {
        caller.tell("how many")?;
        let numbers = caller.hear_numbers()?;
        let [own, older, open] = numbers[..] else { bail!("{numbers:?}") };
        (ended, superseded, pending) = (ended + own, superseded + older, pending + open);
    }
    let (first, last) = (first.unwrap_or(sizes(&server, &callers)?), sizes(&server, &callers)?);
    println!(
        "{ended} calls ended, {superseded} were superseded, {pending} were under way at the end"
    );
    println!("first {first:?}\nlast  {last:?}\nlongest line or list of calls: {longest}");
    let grows = |first: u64, last: u64, by: u64| last > first + by;
    if last.connections != first.connections
        || grows(first.server_kib, last.server_kib, 1 << 10)
        || grows(first.processes_kib, last.processes_kib, 4 << 10)
        || longest > 64
        || pending > 64
    {
        bail!("something grows");
    }
    Ok(())
}

fn sizes(server: &Server, callers: &[Caller]) -> Result<Sizes> {
    let number = |section: &str, name: &str| -> u64 {
        server.info(section, name).and_then(|text| text.parse().ok()).unwrap_or(0)
    };
    let memory = callers.iter().map(Caller::memory).sum::<Result<u64>>()?;
    Ok(Sizes {
        connections: number("clients", "connected_clients"),
        server_kib: number("memory", "used_memory") >> 10,
        processes_kib: memory,
    })
}
