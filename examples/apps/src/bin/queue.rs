//! A fleet of workers on one queue in a table: `REDIS_URL=redis://localhost cargo run --bin queue`,
//! in as many shells as you like.
//!
//! The worker that has the lock does the jobs of a queue one after the other, in order. The table
//! refuses a worker that froze while it held the lock and wakes up late: it keeps the largest
//! fencing number, and accepts no smaller one.

use std::path::Path;
use std::time::Duration;

use redis_locks::{LockError, Locks};
use rusqlite::{Connection, OptionalExtension, Transaction, params};

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS queue (name TEXT PRIMARY KEY, fence INTEGER NOT NULL DEFAULT 0);
    CREATE TABLE IF NOT EXISTS job (
        id INTEGER PRIMARY KEY, queue TEXT NOT NULL, done_by TEXT, times INTEGER NOT NULL DEFAULT 0
    );
";

/// The table, and the queue that this worker serves.
pub struct Queue {
    table: Connection,
    name: &'static str,
}

impl Queue {
    pub fn open(path: &Path, name: &'static str) -> rusqlite::Result<Self> {
        let table = Connection::open(path)?;
        table.busy_timeout(Duration::from_secs(10))?;
        table.execute_batch(SCHEMA)?;
        table.execute("INSERT OR IGNORE INTO queue (name) VALUES (?1)", [name])?;
        Ok(Self { table, name })
    }

    pub fn fill(&self, jobs: u32) -> rusqlite::Result<()> {
        for _ in 0..jobs {
            self.table.execute("INSERT INTO job (queue) VALUES (?1)", [self.name])?;
        }
        Ok(())
    }

    /// The oldest job that is not done.
    pub fn next(&self) -> rusqlite::Result<Option<i64>> {
        let oldest = "SELECT min(id) FROM job WHERE queue = ?1 AND done_by IS NULL";
        self.table.query_row(oldest, [self.name], |row| row.get(0)).optional().map(Option::flatten)
    }

    /// Marks a job as done; `false` if a holder with a larger number was here first, and nothing
    /// was written.
    pub fn done(&mut self, job: i64, worker: &str, fence: u64) -> rusqlite::Result<bool> {
        let transaction: Transaction<'_> =
            self.table.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        // A holder writes several times under one number, hence `<=`.
        let newest = transaction.execute(
            "UPDATE queue SET fence = ?1 WHERE name = ?2 AND fence <= ?1",
            params![fence, self.name],
        )?;
        if newest == 0 {
            return Ok(false);
        }
        transaction.execute(
            "UPDATE job SET done_by = ?1, times = times + 1 WHERE id = ?2",
            params![worker, job],
        )?;
        transaction.commit()?;
        Ok(true)
    }

    /// How often each job was done, in their order.
    pub fn times(&self) -> rusqlite::Result<Vec<u32>> {
        let mut rows = self.table.prepare("SELECT times FROM job WHERE queue = ?1 ORDER BY id")?;
        rows.query_map([self.name], |row| row.get(0))?.collect()
    }
}

/// Works until no job is left, and returns how many jobs this worker did. It releases the lock
/// after each job, so that other workers get their turn.
pub fn work(locks: &Locks, queue: &mut Queue, worker: &str) -> anyhow::Result<u32> {
    let key = format!("queue:{}", queue.name);
    let mut done = 0;
    loop {
        let outcome = locks.mutex(&key).fenced().blocking_run(|guard| {
            let Some(job) = queue.next()? else { return anyhow::Ok(false) };
            let fence = guard.fence().expect("it was asked for");
            done += u32::from(queue.done(job, worker, fence)?);
            Ok(true)
        });
        match outcome {
            Ok(more) => {
                if !more? {
                    return Ok(done);
                }
            }
            // What it wrote was in time or was refused, and the next round finds what is left.
            Err(LockError::Lost { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn main() -> anyhow::Result<()> {
    let locks = Locks::from_env()?;
    let mut queue = Queue::open(&std::env::temp_dir().join("redis-locks-queue.db"), "mails")?;
    queue.fill(100)?;
    let worker = format!("worker {}", std::process::id());
    println!("{worker} did {} jobs", work(&locks, &mut queue, &worker)?);
    locks.blocking_shutdown();
    Ok(())
}
