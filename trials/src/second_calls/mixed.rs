//! Programs of an older version beside this one, at the same key: they exclude each other, the older ones are never
//! asked to leave, and each of their calls runs.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use redis_locks::{LockError, LockRequest, Locks, Origin};
use testbed::Server;

/// Makes the folder that says that a body runs, and says on its output when there is one already.
const BODY: &str = "mkdir \"$0\" || echo overlap; sleep 0.03; rmdir \"$0\"";

/// What one sort of caller has come to.
#[derive(Default)]
struct Counts {
    ran: AtomicU64,
    ended: AtomicU64,
    overlaps: AtomicU64,
}

/// `old` is the program `redis-lock` of another version.
pub(super) fn run(time: Duration, old: &Path) -> Result<()> {
    let (server, dir) = (Server::start(), tempfile::tempdir()?);
    let (inside, over, url) = (dir.path().join("inside"), AtomicBool::new(false), server.url());
    let sorts = ["older version", "newest", "queue", "share", "plain"]
        .map(|name| (name, Counts::default()));
    marks(old, &url)?;
    let begun = Instant::now();
    thread::scope(|scope| {
        let mut callers = Vec::new();
        for (name, counts) in &sorts {
            for _ in 0..2 {
                let (inside, over, url) = (&inside, &over, &url);
                callers.push(scope.spawn(move || {
                    let ended = match *name {
                        "older version" => calls_of_old(old, url, inside, over, counts),
                        "share" => calls_that_share(url, inside, over, counts),
                        name => calls(name, url, inside, over, counts),
                    };
                    over.store(true, Ordering::SeqCst);
                    ended.with_context(|| format!("a caller ({name})"))
                }));
            }
        }
        while begun.elapsed() < time && !over.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(20));
        }
        over.store(true, Ordering::SeqCst);
        let join = |caller: thread::ScopedJoinHandle<'_, Result<()>>| {
            caller.join().map_err(|_| anyhow!("a caller has panicked"))?
        };
        callers.into_iter().try_for_each(join)
    })?;
    server.assert_clean();
    let mut overlaps = 0;
    for (name, Counts { ran, ended, overlaps: own }) in &sorts {
        let [ran, ended, own] = [ran, ended, own].map(|count| count.load(Ordering::SeqCst));
        println!("{name}: {ran} ran, {ended} ended without a run, {own} overlaps");
        overlaps += own;
        if ran == 0 {
            bail!("no call ran ({name})");
        }
    }
    if overlaps > 0 {
        bail!("{overlaps} bodies began while another one ran");
    }
    Ok(())
}

fn calls_of_old(
    old: &Path,
    url: &str,
    inside: &Path,
    over: &AtomicBool,
    counts: &Counts,
) -> Result<()> {
    while !over.load(Ordering::SeqCst) {
        let mut run = Command::new(old);
        run.args(["run", "job", "--", "sh", "-c", BODY]).arg(inside).env("REDIS_URL", url);
        let output = run.stderr(Stdio::inherit()).output().context("the older program")?;
        if !output.status.success() {
            bail!("it ended with {}", output.status);
        }
        counts.ran.fetch_add(1, Ordering::SeqCst);
        if !output.stdout.is_empty() {
            counts.overlaps.fetch_add(1, Ordering::SeqCst);
        }
    }
    Ok(())
}

fn calls(name: &str, url: &str, inside: &Path, over: &AtomicBool, counts: &Counts) -> Result<()> {
    let locks = Locks::open(url)?;
    let request = || -> LockRequest {
        match name {
            "newest" => locks.mutex("job").newest(),
            "queue" => locks.mutex("job").queue(3),
            _ => locks.mutex("job"),
        }
    };
    while !over.load(Ordering::SeqCst) {
        let outcome = request().blocking_run(|guard| -> Result<()> {
            if fs::create_dir(inside).is_err() {
                counts.overlaps.fetch_add(1, Ordering::SeqCst);
            }
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(30) && !guard.is_superseded() {
                thread::sleep(Duration::from_millis(1));
            }
            Ok(fs::remove_dir(inside)?)
        });
        match outcome {
            Ok(body) => {
                body?;
                counts.ran.fetch_add(1, Ordering::SeqCst);
            }
            Err(LockError::Superseded { .. } | LockError::Crowded { .. }) => {
                counts.ended.fetch_add(1, Ordering::SeqCst);
                thread::sleep(Duration::from_millis(20));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn calls_that_share(url: &str, inside: &Path, over: &AtomicBool, counts: &Counts) -> Result<()> {
    let locks = Locks::open(url)?;
    while !over.load(Ordering::SeqCst) {
        let reply = locks.mutex("job").share().blocking_call(|_| {
            if fs::create_dir(inside).is_err() {
                counts.overlaps.fetch_add(1, Ordering::SeqCst);
            }
            thread::sleep(Duration::from_millis(30));
            let _ = fs::remove_dir(inside);
            Ok::<_, LockError>(())
        })?;
        let count = if reply.origin() == Origin::Body { &counts.ran } else { &counts.ended };
        count.fetch_add(1, Ordering::SeqCst);
    }
    Ok(())
}

/// What was done by a program of one version is not done again by the other, and a mark of the older one has no
/// value to replay.
fn marks(old: &Path, url: &str) -> Result<()> {
    let locks = Locks::open(url)?;
    let runs = |key: &str| -> Result<bool> {
        let mut run = Command::new(old);
        run.args(["run", key, "--once", "1m", "--", "echo", "ran"]).env("REDIS_URL", url);
        Ok(!run.stderr(Stdio::null()).output().context("the older program")?.stdout.is_empty())
    };
    let call = |key: &str| {
        let request = locks.mutex(key).once(Duration::from_secs(60)).replay();
        request.blocking_call(|_| Ok::<_, LockError>(7))
    };
    ensure!(runs("old-first")?, "the older program has not run");
    let outcome = call("old-first");
    ensure!(matches!(outcome, Err(LockError::Done { .. })), "an older mark gave {outcome:?}");
    ensure!(call("new-first")?.origin() == Origin::Body, "nobody had done that");
    ensure!(!runs("new-first")?, "the older program has done it again");
    ensure!(call("new-first")?.into_value() == 7, "the value is not the one that was stored");
    println!("marks: each version finds those of the other");
    for key in ["old-first", "new-first"] {
        locks.blocking_force_release(key, "the trial has seen it")?;
    }
    Ok(())
}
