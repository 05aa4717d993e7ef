//! Runtimes that were built without I/O can't watch a socket, and Tokio says so by a panic.

use std::panic;
use std::sync::atomic::{AtomicUsize, Ordering};

use redis_locks::Locks;
use testbed::Server;
use tokio::runtime::{Builder, Runtime};

/// Commands after which a task of the runtime would read the answers, with some to spare.
const PAIRS: usize = 400;

static PANICS: AtomicUsize = AtomicUsize::new(0);

fn use_locks(runtime: &Runtime, locks: &Locks) {
    let locks = locks.clone();
    let task = async move {
        for _ in 0..PAIRS {
            let guard = locks.mutex("k").acquire().await.unwrap();
            guard.release().await.unwrap();
        }
    };
    runtime.block_on(async { tokio::spawn(task).await.unwrap() });
}

#[test]
fn the_panic_hook_hears_at_most_once_that_runtimes_have_no_io() {
    let server = Server::start();
    let others = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        PANICS.fetch_add(1, Ordering::SeqCst);
        others(panic);
    }));
    for _ in 0..3 {
        let locks = Locks::open(server.url()).unwrap();
        for runtime in [Builder::new_current_thread().build(), Builder::new_multi_thread().build()]
        {
            use_locks(&runtime.unwrap(), &locks);
        }
        locks.blocking_shutdown();
    }
    assert!(PANICS.load(Ordering::SeqCst) <= 1, "{PANICS:?}");
    server.assert_clean();
}
