//! What a whole program costs to build, and how large it is.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use super::build;
use crate::cargo::{cargo, must_succeed, target_dir};

/// How many times the CPU of a program with the driver alone a clean debug build may take.
const GOAL: f64 = 1.6;

struct Program {
    name: &'static str,
    /// Lines of its manifest, where `ROOT` stands for this repository.
    needs: &'static str,
    main: &'static str,
}

/// Both take and give back a lock on Tokio.
const PROGRAMS: [Program; 2] = [
    Program {
        name: "redis-alone",
        needs: "redis = { version = \"1\", features = [\"tokio-comp\", \"script\"] }",
        main: r#"
use redis::{ExistenceCheck::NX, Script, SetExpiry::PX, SetOptions};

#[tokio::main]
async fn main() -> redis::RedisResult<()> {
    let client = redis::Client::open("redis://127.0.0.1/")?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    let options = SetOptions::default().conditional_set(NX).with_expiration(PX(30_000));
    let (key, owner) = ("lock:job", "me");
    let set = redis::Cmd::set_options(key, owner, options);
    if set.query_async::<Option<String>>(&mut connection).await?.is_some() {
        let release = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1])";
        Script::new(release).key(key).arg(owner).invoke_async::<()>(&mut connection).await?;
    }
    Ok(())
}
"#,
    },
    Program {
        name: "redis-locks",
        needs: "redis-locks = { path = \"ROOT\" }",
        main: r#"
use redis_locks::{LockError, redis_lock};

#[redis_lock(key = "job", ttl = "30s")]
async fn job() -> Result<(), LockError> {
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), LockError> {
    job().await
}
"#,
    },
];

/// Builds each program once from nothing.
pub(super) fn run(root: &Path) -> Result<()> {
    let mut costs = Vec::new();
    for program in &PROGRAMS {
        let (time, bytes) = program.build(root)?;
        println!(
            "{:<20} {:6.1} s of CPU for a clean debug build, {:5.2} MB as a stripped release",
            program.name,
            time.as_secs_f64(),
            bytes as f64 / 1e6
        );
        costs.push(time.as_secs_f64());
    }
    if let [alone, ours] = costs[..] {
        println!("{:.2} x the driver alone; the goal is {GOAL} x", ours / alone);
    }
    Ok(())
}

impl Program {
    fn build(&self, root: &Path) -> Result<(Duration, u64)> {
        let folder = target_dir().join("build-time").join(self.name);
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(folder.join("src"))?;
        fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock"))?;
        let root = root.to_str().context("a path of this repository is no text")?;
        let manifest = format!(
            "[package]\nname = \"{}\"\nedition = \"2024\"\n[workspace]\n[profile.release]\nstrip = true\n\
             [dependencies]\n{}\n\
             tokio = {{ version = \"1\", features = [\"macros\", \"rt-multi-thread\"] }}\n",
            self.name,
            self.needs.replace("ROOT", root)
        );
        fs::write(folder.join("Cargo.toml"), manifest)?;
        fs::write(folder.join("src/main.rs"), self.main)?;
        // The driver has features of its own here, with packages that this repository does without.
        let mut fetch = cargo(&["fetch", "--quiet"]);
        fetch.current_dir(&folder);
        must_succeed(fetch)?;
        let target = folder.join("target");
        let time = build(&folder, &target, &["build"])?;
        build(&folder, &target, &["build", "--release"])?;
        Ok((time, fs::metadata(target.join("release").join(self.name))?.len()))
    }
}
