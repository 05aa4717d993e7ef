//! A process that has no descriptor left.

use std::process::Command;
use std::time::{Duration, Instant};

use testbed::{Server, in_own_process};

use crate::support::open;

#[test]
fn answers_come_soon_although_no_descriptor_is_left_to_watch_the_socket() {
    in_own_process(|| {
        let server = Server::start();
        let locks = open(&server.url());
        let runtime = tokio::runtime::Runtime::new().unwrap();
        // A task comes to read the answers, and the engine does not watch the socket.
        let pairs = {
            let locks = locks.clone();
            async move {
                for _ in 0..2_000 {
                    locks.mutex("k").acquire().await.unwrap().release().await.unwrap();
                }
            }
        };
        runtime.block_on(async { tokio::spawn(pairs).await.unwrap() });
        let process = std::process::id().to_string();
        let limits = Command::new("prlimit").args(["--pid", &process, "--nofile=3:"]).status();
        assert!(limits.unwrap().success());
        assert!(std::fs::File::open("/dev/null").is_err(), "no descriptor is left");
        drop(runtime);
        let begun = Instant::now();
        for _ in 0..20 {
            locks.mutex("k").blocking_acquire().unwrap().blocking_release().unwrap();
        }
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    });
}
