//! `ping` and `server_info`, for probes.

use std::time::Instant;

use redis_locks::{BackendErrorKind, LockError, Locks};
use testbed::{Proxy, Server, Turns, free_port};

use crate::arena::{Arena, ms};

async fn kind(locks: &Locks) -> BackendErrorKind {
    let LockError::Backend { source, .. } = locks.ping().await.unwrap_err() else { panic!() };
    source.kind()
}

#[test]
fn every_server_answers_and_says_what_it_is() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for arena in Arena::each() {
        runtime.block_on(async {
            let took = arena.one.ping().await.unwrap();
            assert_eq!(took.is_zero(), arena.name == "memory", "{}: {took:?}", arena.name);
            let info = arena.one.server_info().await.unwrap();
            assert_eq!(info, arena.one.status("k").await.unwrap().server);
            arena.one.shutdown().await;
            assert_eq!(arena.one.ping().await, Err(LockError::Shutdown));
            arena.other.shutdown().await;
        });
        arena.assert_clean();
    }
}

#[tokio::test]
async fn servers_that_can_not_be_used_are_errors_in_time() {
    let limit = ms(400);
    let open = |url: String| Locks::builder().url(url).command_timeout(limit).open().unwrap();
    let down = open(format!("redis://127.0.0.1:{}", free_port()));
    assert_eq!(kind(&down).await, BackendErrorKind::Unreachable);
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let locks = open(proxy.url());
    locks.ping().await.unwrap();
    proxy.kill_all();
    locks.ping().await.unwrap();
    proxy.hole();
    let mut turns = Turns::of("a server that swallows everything is an error at the time limit");
    while turns.go_on() {
        let begun = Instant::now();
        let kind_of_hole = kind(&locks).await;
        let took = begun.elapsed();
        let expected = [BackendErrorKind::TimedOut, BackendErrorKind::Unreachable];
        assert!(expected.contains(&kind_of_hole), "{kind_of_hole:?}");
        turns.must_be_below(limit + ms(300), took);
    }
}

#[tokio::test]
async fn servers_that_refuse_writes_are_errors() {
    let server = Server::start();
    let locks = Locks::open(server.url()).unwrap();
    let _: () = server.run("CONFIG SET maxmemory 1");
    assert_eq!(kind(&locks).await, BackendErrorKind::Full);
    let _: () = server.run("CONFIG SET maxmemory 0");
    let _: () = server.run("CONFIG SET min-replicas-to-write 1");
    assert_eq!(kind(&locks).await, BackendErrorKind::NotReplicated);
    let _: () = server.run("CONFIG SET min-replicas-to-write 0");
    locks.ping().await.unwrap();
    let primary = Server::start();
    let _: () = server.run(&format!("REPLICAOF 127.0.0.1 {}", primary.port()));
    assert_eq!(kind(&locks).await, BackendErrorKind::ReadOnly);
}
