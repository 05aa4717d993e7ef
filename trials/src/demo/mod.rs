mod progress;
mod screen;
mod worker;

pub(crate) use worker::{WorkerOptions, work};

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use anyhow::{Context, Result, anyhow, bail};
use testbed::{Permission, Server, SharedCounter, find_or_install};

use progress::Progress;
use screen::Screen;

const WORKERS: u64 = 4;
const UPDATES_EACH: u64 = 250;

/// Several processes add to one counter in a file, first without and then with the lock. A recording
/// of it is written to `record`, as an animated SVG.
pub(crate) fn run(yes: bool, record: Option<&Path>) -> Result<()> {
    let screen = Screen::new(record.is_some());
    let permission = if yes { Permission::System } else { Permission::Ask };
    let binary = find_or_install(permission).map_err(|advice| anyhow!(advice))?;
    screen.write(&format!("Server: {binary}, started for this demo.\n"));
    let server = Server::builder().binary(binary).start();
    screen.write(&format!(
        "{WORKERS} processes add 1 to the number in one file, {UPDATES_EACH} times each: \
         read, think for a moment, write.\n\n"
    ));
    let dir = tempfile::tempdir().context("a directory for the counter")?;
    let rounds = ["without the lock", "with #[redis_lock]"].map(|name| (name, name.contains('#')));
    let mut outcomes = Vec::new();
    for (name, locked) in rounds {
        let counter = SharedCounter::create(&dir.path().join(name))?;
        outcomes.push((name, round(name, locked, &counter, &server.url(), &screen)?));
    }

    screen.write(&format!(
        "\n{:<20}{:>14}{:>14}{:>10}\n",
        "", "updates done", "updates lost", "time"
    ));
    for (name, Outcome { done, lost, time }) in &outcomes {
        screen.write(&format!("{name:<20}{done:>14}{lost:>14}{:>8.1} s\n", time.as_secs_f32()));
    }
    let (unlocked, locked) = (&outcomes[0].1, &outcomes[1].1);
    if locked.lost > 0 {
        bail!("{} updates were lost under the lock", locked.lost);
    }
    if unlocked.lost == 0 {
        screen.write("\nNo update was lost without the lock this time: luck, not safety.\n");
    }
    if let Some(file) = record {
        fs::write(file, screen.picture("cargo xtask demo"))?;
    }
    Ok(())
}

struct Outcome {
    done: u64,
    lost: u64,
    time: Duration,
}

fn round(
    name: &str,
    locked: bool,
    counter: &SharedCounter,
    url: &str,
    screen: &Screen,
) -> Result<Outcome> {
    let start = Instant::now();
    let (sender, ticks) = mpsc::channel();
    let mut workers = Vec::new();
    for _ in 0..WORKERS {
        let mut command = Command::new(env::current_exe().context("the path of this program")?);
        command
            .arg("demo-worker")
            .arg(counter.path())
            .arg(UPDATES_EACH.to_string())
            .args(locked.then_some("--locked"))
            .env("REDIS_URL", url)
            .stdout(Stdio::piped());
        let mut worker = command.spawn().context("a worker process")?;
        let stdout = worker.stdout.take().context("the worker's stdout")?;
        let sender = sender.clone();
        thread::spawn(move || {
            // One line per update; the parent stops listening only when it fails.
            for _ in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = sender.send(());
            }
        });
        workers.push(worker);
    }
    drop(sender);

    let mut progress = Progress::new(name, WORKERS * UPDATES_EACH, screen);
    let mut done = 0;
    for () in ticks {
        done += 1;
        // Workers report what they have written: what the file does not show is lost.
        progress.show(done, done.saturating_sub(counter.read()?));
    }
    for mut worker in workers {
        let status = worker.wait()?;
        if !status.success() {
            bail!("a worker ended with {status}");
        }
    }
    let outcome = Outcome { done, lost: done - counter.read()?.min(done), time: start.elapsed() };
    progress.finish(outcome.done, outcome.lost);
    Ok(outcome)
}
