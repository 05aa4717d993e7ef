//! One function, one at a time: `cargo run --example quickstart`.
//!
//! It locks inside this process. Set `REDIS_URL` to use a server, start it in two terminals at
//! once, and watch them take turns.

use std::time::Duration;

use redis_locks::{LockError, Locks, redis_lock};

#[redis_lock(key = "report:{day}", ttl = "10s", wait = "30s")]
async fn write_report(day: &str, author: &str) -> Result<(), LockError> {
    println!("{author} starts {day}'s report");
    tokio::time::sleep(Duration::from_millis(500)).await;
    println!("{author} has written it");
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), LockError> {
    let locks = match std::env::var("REDIS_URL") {
        Ok(url) => {
            println!("locking on the server that REDIS_URL names");
            Locks::connect(url.as_str()).await?
        }
        Err(_) => {
            println!("locking inside this process (set REDIS_URL to lock between processes)");
            Locks::in_memory()
        }
    };
    locks.install()?;

    let authors = ["Ada", "Grace", "Edsger"];
    let reports = authors.map(|author| tokio::spawn(write_report("Monday", author)));
    for report in reports {
        match report.await {
            Ok(outcome) => outcome?,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }
    Locks::global()?.shutdown().await;
    Ok(())
}
