//! What is reported to `tracing`. One subscriber for the whole program, because the engine's thread
//! reports as well; each test looks at its own key.

#![cfg(feature = "tracing")]

#[path = "support/recorder.rs"]
mod recorder;

use std::sync::{Barrier, Once};
use std::thread;
use std::time::Duration;

use redis_locks::{Guard, LockError, Locks, redis_lock};
use testbed::{Proxy, Server, eventually, free_port, in_own_process};
use tracing::Level;

use recorder::{Recorder, Reported, records};

const SECOND: Duration = Duration::from_secs(1);

#[redis_lock(key = "endless", via = locks, on_busy = Ok(false))]
fn waits_for_ever(locks: &Locks) -> Result<bool, LockError> {
    Ok(true)
}

#[redis_lock(key = "endless", via = locks, on_busy = Ok(false), wait = "1s")]
fn waits_for_a_second(locks: &Locks) -> Result<bool, LockError> {
    Ok(true)
}

#[redis_lock(key = "endless", via = locks, on_busy = Ok(false), max_waiters = 9)]
fn waits_in_a_short_queue(locks: &Locks) -> Result<bool, LockError> {
    Ok(true)
}

#[test]
fn a_value_for_a_busy_lock_that_is_never_returned_is_reported_once() {
    listen();
    let locks = Locks::in_memory();
    for _ in 0..3 {
        assert!(waits_for_ever(&locks).unwrap() && waits_for_a_second(&locks).unwrap());
        assert!(waits_in_a_short_queue(&locks).unwrap());
    }
    let about = |function: &str| {
        records().reported.iter().filter(|reported| reported.what.contains(function)).count()
    };
    assert_eq!((about("waits_for_ever"), about("waits_for_a_second")), (1, 0));
    assert_eq!(about("waits_in_a_short_queue"), 0);
}

fn made_anew() -> Locks {
    Locks::in_memory()
}

#[redis_lock(key = "anew", via = made_anew())]
async fn makes_locks_for_each_call() -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key = "kept", via = locks.clone())]
async fn clones_locks_for_each_call(locks: &Locks) -> Result<(), LockError> {
    Ok(())
}

#[tokio::test]
async fn locks_that_are_made_for_each_call_are_reported_once() {
    listen();
    let locks = Locks::in_memory();
    for _ in 0..3 {
        makes_locks_for_each_call().await.unwrap();
        clones_locks_for_each_call(&locks).await.unwrap();
    }
    let about = |function: &str| {
        records().reported.iter().filter(|reported| reported.what.contains(function)).count()
    };
    let seen = (about("makes_locks_for_each_call"), about("clones_locks_for_each_call"));
    assert_eq!(seen, (1, 0));
}

fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing::subscriber::set_global_default(Recorder).unwrap());
}

/// All that was reported of a key, in its order.
fn of(key: &str) -> Vec<Reported> {
    let records = records();
    let about = |reported: &&Reported| reported.fields.get("key").is_some_and(|value| value == key);
    records.reported.iter().filter(about).cloned().collect()
}

fn words(key: &str) -> Vec<String> {
    of(key).into_iter().map(|reported| reported.what).collect()
}

/// What was reported of a key with this word, once it has been.
#[track_caller]
fn first(key: &str, what: &str) -> Reported {
    let find = || of(key).into_iter().find(|reported| reported.what == what);
    eventually(20 * SECOND, &format!("`{what}` is reported of {key}"), || find().is_some());
    find().unwrap()
}

fn lose(guard: &Guard) {
    eventually(20 * SECOND, "the guard knows", || !guard.is_held());
}

#[test]
fn an_acquisition_and_its_hold_are_reported_from_beginning_to_end() {
    listen();
    let locks = Locks::in_memory();
    let guard = locks.mutex("plain").metric_name("a name").fenced().blocking_acquire().unwrap();
    let (token, fence) = (guard.token().to_string(), guard.fence().unwrap().to_string());
    guard.blocking_release().unwrap();
    let expected = ["+acquire", "acquired", "+hold", "-acquire", "released", "-hold"];
    assert_eq!(words("plain"), expected);
    assert!(of("plain").iter().all(|it| it.fields["lock"] == "a name"), "{:?}", of("plain"));
    let acquired = first("plain", "acquired");
    assert_eq!(acquired.level, Level::DEBUG);
    assert_eq!(acquired.within, ["acquire"]);
    assert_eq!((&acquired.fields["token"], &acquired.fields["fence"]), (&token, &fence));
    assert_eq!(acquired.fields["kind"], "mutex");
    assert!(acquired.number("waited_ms") < 5_000.0);
    let released = first("plain", "released");
    assert_eq!(released.within, ["hold"]);
    assert!(released.number("held_ms") >= 0.0);
}

#[test]
fn a_wait_is_reported_with_whom_it_is_for_and_how_long_it_took() {
    listen();
    let server = Server::start();
    let build = |label: &str| Locks::builder().url(server.url()).label(label).open().unwrap();
    let (holder, other) = (build("the holder"), build("the other"));
    let guard = holder.mutex("busy").blocking_acquire().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| drop(other.mutex("busy").blocking_acquire().unwrap()));
        let contended = first("busy", "the lock is busy; waiting where the caller waits");
        assert_eq!(contended.fields["holder"], "the holder");
        assert_eq!(contended.fields["here"], "false");
        thread::sleep(Duration::from_millis(60));
        guard.blocking_release().unwrap();
    });
    let waits: Vec<f64> = of("busy")
        .iter()
        .filter(|reported| reported.what == "acquired")
        .map(|reported| reported.number("waited_ms"))
        .collect();
    assert!(waits.len() == 2 && waits[1] >= 60.0, "{waits:?}");
}

#[test]
fn a_wait_inside_the_process_is_reported_as_well() {
    listen();
    let locks = Locks::builder().in_memory().label("here").open().unwrap();
    let guard = locks.mutex("inside").blocking_acquire().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| drop(locks.mutex("inside").blocking_acquire().unwrap()));
        let contended = first("inside", "the lock is busy; waiting where the caller waits");
        assert_eq!(
            (contended.fields["holder"].as_str(), contended.fields["here"].as_str()),
            ("here", "true")
        );
        assert_eq!(contended.within, ["acquire"]);
        guard.blocking_release().unwrap();
    });
}

#[tokio::test]
async fn whoever_goes_without_is_reported_of() {
    listen();
    let locks = Locks::builder().in_memory().label("here").open().unwrap();
    let _held = locks.mutex("denied").acquire().await.unwrap();
    assert!(locks.mutex("denied").try_acquire().await.unwrap().is_none());
    let busy = first("denied", "busy");
    assert_eq!(busy.fields["holder"], "here");
    drop(tokio::time::timeout(Duration::from_millis(10), locks.mutex("denied").acquire()).await);
    first("denied", "the caller stopped waiting");
}

#[test]
fn a_loss_is_reported_once_with_its_reason_inside_its_hold() {
    listen();
    let server = Server::start();
    let locks = Locks::open(server.url()).unwrap();
    let guard = locks.mutex("gone").blocking_acquire().unwrap();
    locks.blocking_force_release("gone", "it hangs").unwrap();
    lose(&guard);
    let lost = first("gone", "lost");
    assert_eq!(lost.level, Level::WARN);
    assert_eq!(lost.fields["reason"], "forced");
    assert!(lost.fields["why"].contains("it hangs"), "{lost:?}");
    let held = lost.number("held_ms");
    assert_eq!((held * 1e3).round() / 1e3, held, "it has decimals of no meaning");
    assert_eq!(lost.within, ["hold"]);
    assert_eq!(first("gone", "released by force").level, Level::WARN);
    drop(guard);
    first("gone", "-hold");
    let losses = words("gone").iter().filter(|word| *word == "lost").count();
    assert_eq!((losses, words("gone").contains(&"released".into())), (1, false));
}

#[test]
fn missed_renewals_and_failed_commands_are_reported() {
    listen();
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let locks = Locks::open(proxy.url()).unwrap();
    let guard = locks.mutex("cut").ttl(SECOND).blocking_acquire().unwrap();
    proxy.hole();
    let missed = first("cut", "a renewal was missed; the lease still runs");
    assert!(!missed.fields.contains_key("lock"), "it has no name");
    assert_eq!(missed.level, Level::WARN);
    first("cut", "a command failed");
    lose(&guard);
    assert_eq!(first("cut", "lost").fields["reason"], "expired");
    assert!(first("cut", "lost").fields["why"].contains("lease ended"));
    proxy.pass();
}

#[redis_lock(key = "stalled", via = locks, wait = "1500ms")]
fn stalls(locks: &Locks) -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key = "pooled", via = locks, wait = "1500ms")]
fn does_not_stall(locks: &Locks) -> Result<(), LockError> {
    Ok(())
}

#[test]
fn a_function_that_blocks_its_runtime_s_only_thread_is_named() {
    listen();
    let locks = Locks::in_memory();
    let elsewhere = |key| locks.mutex(key).blocking_acquire().unwrap();
    let (_held, _other) = thread::scope(|scope| {
        let taken = scope.spawn(|| (elsewhere("stalled"), elsewhere("pooled")));
        taken.join().unwrap()
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let pooled = tokio::task::spawn_blocking({
            let locks = locks.clone();
            move || does_not_stall(&locks)
        });
        assert!(stalls(&locks).unwrap_err().is_busy());
        assert!(pooled.await.unwrap().unwrap_err().is_busy());
    });
    let warnings = |key| {
        of(key).into_iter().filter(|reported| reported.level == Level::WARN).collect::<Vec<_>>()
    };
    let [warning] = warnings("stalled").try_into().unwrap();
    assert!(
        warning.what.contains("stalls") && warning.what.contains("spawn_blocking"),
        "{warning:?}"
    );
    assert!(warnings("pooled").is_empty(), "a thread for blocking work may block");
}

#[redis_lock(key = "own", via = locks, wait = "1500ms")]
fn waits_for_its_own(locks: &Locks) -> Result<(), LockError> {
    Ok(())
}

#[test]
fn a_call_whose_own_thread_has_taken_the_lock_is_named_without_a_runtime() {
    listen();
    let locks = Locks::in_memory();
    let _held = locks.mutex("own").blocking_acquire().unwrap();
    let warnings =
        || of("own").into_iter().filter(|it| it.level == Level::WARN).collect::<Vec<_>>();
    let elsewhere = || waits_for_its_own(&locks).unwrap_err().is_busy();
    assert!(thread::scope(|scope| scope.spawn(elsewhere).join().unwrap()));
    assert!(warnings().is_empty(), "another thread may wait: {:?}", warnings());
    assert!(waits_for_its_own(&locks).unwrap_err().is_busy());
    let [warning] = warnings().try_into().unwrap();
    assert!(
        warning.what.contains("waits_for_its_own") && warning.what.contains("holds `own`"),
        "{warning:?}"
    );
}

#[test]
fn a_server_that_is_down_is_reported_once_while_callers_wait_for_it() {
    // The servers of other tests are down as well.
    in_own_process(|| {
        listen();
        let url = format!("redis://127.0.0.1:{}", free_port());
        let locks = Locks::builder().url(url).outage(2 * SECOND).open().unwrap();
        for _ in 0..2 {
            locks.mutex("down").blocking_acquire().unwrap_err();
        }
        let records = records();
        let tells = |reported: &&Reported| {
            reported.level == Level::WARN && reported.what.contains("trying again")
        };
        let warnings: Vec<_> = records.reported.iter().filter(tells).collect();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
    });
}

/// What was reported of no key at these levels.
fn lines(levels: &[Level]) -> Vec<String> {
    let records = records();
    let fits = |reported: &&Reported| {
        levels.contains(&reported.level) && !reported.what.starts_with(['+', '-'])
    };
    records.reported.iter().filter(fits).map(|reported| reported.what.clone()).collect()
}

fn count(lines: &[String], what: &str) -> usize {
    lines.iter().filter(|line| line.contains(what)).count()
}

#[test]
fn an_outage_is_told_when_it_begins_and_when_it_is_over() {
    in_own_process(|| {
        listen();
        let server = Server::start();
        let locks = Locks::builder().url(server.url()).outage(60 * SECOND).open().unwrap();
        drop(locks.mutex("before").blocking_acquire().unwrap());
        server.kill9();
        thread::scope(|scope| {
            let waits = scope.spawn(|| locks.mutex("while").blocking_acquire().map(drop));
            let begins = || count(&lines(&[Level::WARN]), "trying again") == 1;
            eventually(20 * SECOND, "the outage is told", begins);
            server.restart();
            waits.join().unwrap().unwrap();
        });
        let ends = || count(&lines(&[Level::INFO]), "the lock server works again after") == 1;
        eventually(20 * SECOND, "its end is told", ends);
        assert_eq!(count(&lines(&[Level::INFO]), "connected to the lock server"), 1);
        let again = count(&lines(&[Level::WARN]), "trying again");
        assert_eq!(again, 1, "{:?}", lines(&[Level::WARN]));
    });
}

#[test]
fn a_full_server_is_told_of_once_and_so_is_its_end() {
    in_own_process(|| {
        listen();
        let server = Server::start();
        let locks = Locks::open(server.url()).unwrap();
        let held = locks.mutex("held").blocking_acquire().unwrap();
        server.run::<()>("CONFIG SET maxmemory 1");
        for _ in 0..20 {
            locks.mutex("refused").no_wait().blocking_acquire().unwrap_err();
        }
        let about = |level| count(&lines(&[level]), "OOM");
        eventually(20 * SECOND, "the refusals are told", || about(Level::WARN) == 1);
        held.blocking_extend(60 * SECOND).unwrap();
        server.run::<()>("CONFIG SET maxmemory 0");
        assert_eq!(about(Level::INFO), 0, "a full server still renews");
        drop(locks.mutex("granted").no_wait().blocking_acquire().unwrap());
        eventually(20 * SECOND, "the end is told", || about(Level::INFO) == 1);
        assert_eq!(about(Level::WARN), 1);
    });
}

#[test]
#[ignore = "it takes a minute; `cargo xtask ci slow-tests` runs it"]
fn an_outage_of_a_minute_with_a_thousand_locks_is_told_in_a_few_lines() {
    const LOCKS: usize = 1_000;
    in_own_process(|| {
        listen();
        let server = Server::start();
        let proxy = Proxy::to(server.port());
        let locks = Locks::builder().url(proxy.url()).outage(90 * SECOND).open().unwrap();
        let ttl = |number: usize| if number < LOCKS / 2 { 30 * SECOND } else { 180 * SECOND };
        let held: Vec<_> = (0..LOCKS)
            .map(|number| {
                locks.mutex(format!("{number}")).ttl(ttl(number)).blocking_acquire().unwrap()
            })
            .collect();
        proxy.hole();
        thread::sleep(61 * SECOND);
        proxy.pass();
        drop(locks.mutex("after").blocking_acquire().unwrap());
        let is_over = || count(&lines(&[Level::INFO]), "the lock server works again after") > 0;
        eventually(10 * SECOND, "its end is told", is_over);
        let said = lines(&[Level::ERROR, Level::WARN, Level::INFO]);
        let lost = count(&said, "lost");
        let of_server: Vec<_> = said.iter().filter(|line| *line != "lost").collect();
        println!("{lost} locks were lost; besides: {of_server:#?}");
        assert!((LOCKS / 2..=LOCKS).contains(&lost), "{lost}");
        assert!(of_server.len() <= 8, "{of_server:?}");
        let end = said.iter().find(|line| line.contains("works again after")).unwrap();
        assert!(end.contains(" 1 min ") || end.contains("after 5"), "{end}");
        drop(held);
    });
}

#[redis_lock(key = "first", via = locks)]
fn locks_first_then_second(locks: &Locks, meet: &Barrier) -> Result<(), LockError> {
    meet.wait();
    let _second = locks.mutex("second").wait(35 * SECOND).blocking_acquire()?;
    Ok(())
}

#[redis_lock(key = "second", via = locks)]
fn locks_second_then_first(locks: &Locks, meet: &Barrier) -> Result<(), LockError> {
    meet.wait();
    let _first = locks.mutex("first").wait(35 * SECOND).blocking_acquire()?;
    Ok(())
}

#[test]
#[ignore = "it takes half a minute; `cargo xtask ci slow-tests` runs it"]
fn two_calls_that_wait_for_each_other_are_told_of() {
    listen();
    let locks = Locks::builder().in_memory().label("web-3").open().unwrap();
    let meet = Barrier::new(2);
    let results = thread::scope(|scope| {
        let first = scope.spawn(|| locks_first_then_second(&locks, &meet));
        [locks_second_then_first(&locks, &meet), first.join().unwrap()]
    });
    assert!(results.iter().any(|result| result.as_ref().is_err_and(LockError::is_busy)));
    for (key, other) in [("first", "second"), ("second", "first")] {
        let is_it = |reported: &&Reported| reported.level == Level::WARN;
        let reported = of(key);
        let [told] = reported.iter().filter(is_it).collect::<Vec<_>>().try_into().unwrap();
        let begin = format!("a call has waited for 30 s for `{key}`, held by web-3 ");
        let end = format!(", while holding `{other}`");
        assert!(told.what.starts_with(&begin) && told.what.ends_with(&end), "{told:?}");
    }
}
