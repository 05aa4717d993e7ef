//! Measures the build time of annotated functions, compared with the same lock written by hand and
//! with `#[async_trait]`.

mod whole;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{env, fs};

use anyhow::{Context, Result};

use crate::cargo::{cargo, must_succeed, target_dir};

/// How many functions a program has.
const FUNCTIONS: u32 = 500;

/// How often each is built. The best time counts, because other load only makes builds slower.
const ROUNDS: u32 = 3;

/// A way to write the functions: their attribute, and the code around their bodies.
struct Style {
    name: &'static str,
    attribute: &'static str,
    body: &'static str,
}

const STYLES: [Style; 4] = [
    Style { name: "plain", attribute: "", body: "tick(id).await?; Ok(id + N)" },
    Style {
        name: "redis_lock",
        attribute: "#[redis_locks::redis_lock(key = \"fN:{id}\", ttl = \"30s\")]",
        body: "tick(id).await?; Ok(id + N)",
    },
    Style {
        name: "by hand",
        attribute: "",
        body: "let locks = redis_locks::Locks::global()?;
               let ttl = std::time::Duration::from_secs(30);
               let guard = locks.mutex(format!(\"fN:{id}\")).ttl(ttl).acquire().await?;
               let value = async { tick(id).await?; Ok(id + N) }.await;
               guard.release().await?;
               value",
    },
    Style {
        name: "tracing::instrument",
        attribute: "#[tracing::instrument]",
        body: "tick(id).await?; Ok(id + N)",
    },
];

/// Prints what a whole program costs beside one with the driver alone, what a function costs in each style,
/// and the time of a clean build of the macro crate.
pub(crate) fn run() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies in a folder")?;
    whole::run(root)?;
    functions(root)?;
    from_nothing(root)
}

fn functions(root: &Path) -> Result<()> {
    let folder = target_dir().join("build-time");
    for style in &STYLES {
        write_program(&folder.join(package(style)), root, style)?;
    }
    let costs = measure(&folder)?;
    let [plain, ..] = &costs;
    println!("{FUNCTIONS} functions, each beside a plain one; best of {ROUNDS}");
    for (style, cost) in STYLES.iter().zip(&costs) {
        println!(
            "{:<20} check {:+6.2} ms  debug {:+6.2} ms  release {:+6.2} ms {:+7.0} bytes",
            style.name,
            each(cost.check, plain.check),
            each(cost.debug, plain.debug),
            each(cost.release, plain.release),
            (cost.bytes as f64 - plain.bytes as f64) / f64::from(FUNCTIONS),
        );
    }
    Ok(())
}

fn each(time: Duration, plain: Duration) -> f64 {
    (time.as_secs_f64() - plain.as_secs_f64()) * 1000.0 / f64::from(FUNCTIONS)
}

fn package(style: &Style) -> String {
    style.name.replace([' ', ':'], "-")
}

/// The code of every program, including the plain one, so that the time to link the engine is the
/// same for all.
const BASE: &str = "use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};
use redis_locks::LockError;
async fn tick(id: u64) -> Result<u64, LockError> {
    std::future::poll_fn(|_| std::task::Poll::Ready(())).await;
    Ok(std::hint::black_box(id))
}
#[redis_locks::redis_lock(key = \"base:{id}\")]
async fn base(id: u64) -> Result<u64, LockError> {
    let guard = redis_locks::Locks::global()?.mutex(format!(\"b{id}\")).acquire().await?;
    guard.release().await?;
    tick(id).await
}
";

/// A program that calls each function, so that none is left out.
fn write_program(folder: &Path, root: &Path, style: &Style) -> Result<()> {
    fs::create_dir_all(folder.join("src"))?;
    fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock"))?;
    let manifest = format!(
        "[package]\nname = \"{}\"\nedition = \"2024\"\n[workspace]\n[profile.release]\nstrip = true\n\
         [dependencies]\nredis-locks = {{ path = {root:?} }}\n\
         tracing = {{ version = \"0.1\", default-features = false, features = [\"attributes\"] }}\n",
        package(style)
    );
    fs::write(folder.join("Cargo.toml"), manifest)?;
    let mut program = String::from(BASE);
    let mut calls = String::from("Box::pin(base(1)),\n");
    for number in 0..FUNCTIONS {
        let text = format!(
            "{}\nasync fn fN(id: u64) -> Result<u64, LockError> {{ {} }}\n",
            style.attribute, style.body
        );
        program.push_str(&text.replace('N', &number.to_string()));
        writeln!(calls, "Box::pin(f{number}(1)),")?;
    }
    write!(
        program,
        "fn main() {{\nlet all: Vec<Pin<Box<dyn Future<Output = Result<u64, LockError>> + Send>>> = \
         vec![{calls}];\nfor mut call in all {{\n\
         let _ = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));\n}}\n}}\n"
    )?;
    Ok(fs::write(folder.join("src/main.rs"), program)?)
}

struct Cost {
    check: Duration,
    debug: Duration,
    release: Duration,
    bytes: u64,
}

/// Builds the styles in turn, round by round, so that other load affects all of them alike.
fn measure(folder: &Path) -> Result<[Cost; STYLES.len()]> {
    let target = folder.join("target");
    let never = || Cost {
        check: Duration::MAX,
        debug: Duration::MAX,
        release: Duration::MAX,
        bytes: u64::MAX,
    };
    let mut costs = STYLES.each_ref().map(|_| never());
    // The first round builds what the programs depend on.
    for round in 0..=ROUNDS {
        for (style, cost) in STYLES.iter().zip(&mut costs) {
            let program = folder.join(package(style));
            let again = || -> Result<()> {
                let source = fs::File::open(program.join("src/main.rs"))?;
                Ok(source.set_modified(std::time::SystemTime::now())?)
            };
            let spent = |arguments: &[&str]| -> Result<Duration> {
                again()?;
                let spent = build(&program, &target, arguments)?;
                Ok(if round == 0 { Duration::MAX } else { spent })
            };
            cost.check = cost.check.min(spent(&["check"])?);
            cost.debug = cost.debug.min(spent(&["build"])?);
            cost.release = cost.release.min(spent(&["build", "--release"])?);
            cost.bytes = fs::metadata(target.join("release").join(package(style)))?.len();
        }
    }
    Ok(costs)
}

fn build(program: &Path, target: &Path, arguments: &[&str]) -> Result<Duration> {
    let mut build = cargo(arguments);
    build.args(["--quiet", "--offline"]);
    // An incremental build would hide the cost.
    build.env("CARGO_INCREMENTAL", "0").env("CARGO_TARGET_DIR", target).current_dir(program);
    let (start, before) = (Instant::now(), processor_time());
    must_succeed(build)?;
    let spent = before.zip(processor_time()).map(|(before, after)| after.saturating_sub(before));
    Ok(spent.unwrap_or_else(|| start.elapsed()))
}

/// The processor time of all ended child processes, on Linux. Elsewhere wall-clock time is used,
/// and nothing else should run at the same time.
fn processor_time() -> Option<Duration> {
    let text = fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program is in parentheses and may hold spaces. The 16th and 17th field are
    // behind it, in hundredths of a second.
    let (_, fields) = text.rsplit_once(") ")?;
    let children = fields.split(' ').skip(13).take(2).map(|field| field.parse::<u64>().ok());
    Some(Duration::from_millis(10 * children.sum::<Option<u64>>()?))
}

/// Builds each attribute with its dependencies from nothing, a few times in turn.
fn from_nothing(root: &Path) -> Result<()> {
    let ours = format!("{{ path = {:?} }}", root.join("redis-lock-macros"));
    let packages = [("redis-lock-macros", ours.as_str()), ("tracing-attributes", "\"0.1\"")];
    let folder = env::temp_dir().join(format!("redis-locks-build-time-{}", std::process::id()));
    let mut best = [Duration::MAX; 2];
    for _ in 0..ROUNDS {
        for ((package, source), best) in packages.iter().zip(&mut best) {
            *best = clean_build(root, &folder, package, source)?.min(*best);
        }
    }
    for ((package, _), best) in packages.iter().zip(best) {
        println!("{package:<20} {:6.2} s from nothing, best of {ROUNDS}", best.as_secs_f64());
    }
    Ok(())
}

fn clean_build(root: &Path, folder: &PathBuf, package: &str, source: &str) -> Result<Duration> {
    // A package of its own: as part of this workspace it would be built with our features.
    fs::create_dir_all(folder.join("src"))?;
    fs::write(folder.join("src/lib.rs"), "")?;
    fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock"))?;
    let manifest = format!(
        "[package]\nname = \"from-nothing\"\nedition = \"2024\"\n[workspace]\n\
         [dependencies]\n{package} = {source}\n"
    );
    fs::write(folder.join("Cargo.toml"), manifest)?;
    let time = build(folder, &folder.join("target"), &["build"])?;
    fs::remove_dir_all(folder)?;
    Ok(time)
}
