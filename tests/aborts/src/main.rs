//! Uses locks from all sorts of runtimes. `cargo xtask ci aborts` builds it with `panic = "abort"`, where
//! any panic ends it, also one that the library could catch elsewhere.

use std::thread;
use std::time::Duration;

use redis_locks::Locks;
use testbed::Server;
use tokio::runtime::{Builder, Runtime};
use tokio::task::LocalSet;

/// After so many commands, some with time between them, a task of a runtime would read the answers.
const PAIRS: usize = 400;

fn runtimes() -> [Runtime; 4] {
    [
        Builder::new_current_thread().build(),
        Builder::new_current_thread().enable_all().build(),
        Builder::new_multi_thread().worker_threads(2).build(),
        Builder::new_multi_thread().worker_threads(2).enable_all().build(),
    ]
    .map(|runtime| runtime.expect("a runtime"))
}

async fn pairs(locks: Locks, key: &str) {
    for _ in 0..PAIRS {
        let guard = locks.mutex(key).acquire().await.expect("a lock");
        guard.release().await.expect("a release");
    }
}

fn use_one(runtime: &Runtime, locks: &Locks) {
    let task = runtime.spawn(pairs(locks.clone(), "one"));
    runtime.block_on(task).expect("a task that ends");
}

/// A call that blocks for long, in a task that can't be handed over.
fn block_in_local_set(runtime: &Runtime, url: &str, locks: &Locks) {
    let others = Locks::open(url).expect("locks");
    let theirs = others.mutex("blocked").blocking_acquire().expect("a lock");
    let release = thread::spawn(move || {
        thread::sleep(Duration::from_millis(200));
        theirs.blocking_release()
    });
    let locks = locks.clone();
    let blocking = async move {
        let guard = locks.mutex("blocked").wait_forever().blocking_acquire().expect("a lock");
        guard.blocking_release().expect("a release");
    };
    let set = LocalSet::new();
    let task = set.spawn_local(blocking);
    runtime.block_on(set.run_until(task)).expect("a task that ends");
    release.join().expect("a thread that ends").expect("a release");
    others.blocking_shutdown();
}

fn two_at_once(locks: &Locks) {
    for (number, runtime) in runtimes().into_iter().enumerate() {
        thread::scope(|scope| {
            scope.spawn(|| use_one(&runtime, locks));
            let key = format!("two{number}");
            scope.spawn(move || {
                Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .expect("a runtime")
                    .block_on(pairs(locks.clone(), &key));
            });
        });
    }
}

fn main() {
    if cfg!(not(panic = "abort")) {
        panic!("it shows nothing where panics can be caught");
    }
    let server = Server::start();
    let url = server.url();
    // The main thread is never taken for a worker.
    let elsewhere = thread::spawn(move || {
        for runtime in runtimes() {
            let locks = Locks::open(&url).expect("locks");
            use_one(&runtime, &locks);
            block_in_local_set(&runtime, &url, &locks);
            locks.blocking_shutdown();
        }
        let locks = Locks::open(&url).expect("locks");
        two_at_once(&locks);
        locks.blocking_shutdown();
    });
    elsewhere.join().expect("a thread that ends");
    server.assert_clean();
}
