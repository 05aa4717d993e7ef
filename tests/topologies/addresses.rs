//! Addresses that lead elsewhere, and the names that connections have there.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use std::thread;

use redis_locks::{Locks, Scripting};
use testbed::{Cluster, Server, eventually, holds_for};

use crate::arena::{PATIENCE, ms, take};
use crate::is_held;
use crate::quorum::Nodes;

const MAPS: u8 = 0;
const BLOCKS: u8 = 1;
const PANICS: u8 = 2;

#[test]
fn an_address_map_that_blocks_or_panics_costs_no_lock_of_other_nodes() {
    let cluster = Cluster::builder().replicas(0).start();
    let behaviour = Arc::new(AtomicU8::new(MAPS));
    let state = Arc::clone(&behaviour);
    let map = move |host: &str, port: u16| {
        while state.load(SeqCst) == BLOCKS {
            thread::sleep(ms(5));
        }
        assert_ne!(state.load(SeqCst), PANICS, "as a mistake in it would");
        (host.to_owned(), port)
    };
    let builder = Locks::builder().cluster(cluster.urls()).address_map(map);
    let locks = builder.ttl(ms(3_000)).outage(ms(4_000)).open().unwrap();
    let on = |node| cluster.name_at(node, "job", |key| format!("lock:{key}"));
    let (here, there) = (on(&cluster.nodes()[0]), on(&cluster.nodes()[1]));
    take(locks.mutex(&here)).blocking_release().unwrap();
    let guard = take(locks.mutex(&there));
    for trouble in [BLOCKS, PANICS] {
        behaviour.store(trouble, SeqCst);
        let _ = cluster.nodes()[0].server().query::<i64>(
            redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal").arg("SKIPME").arg("yes"),
        );
        let error = locks.mutex(&here).blocking_acquire().map(drop).unwrap_err();
        if trouble == PANICS {
            assert!(error.to_string().contains("address_map"), "{error}");
        }
        holds_for(ms(4_000), "the other node's lock is renewed", || is_held(&guard));
        behaviour.store(MAPS, SeqCst);
        eventually(PATIENCE, "the node is reached again", || {
            locks
                .mutex(&here)
                .blocking_acquire()
                .is_ok_and(|guard| guard.blocking_release().is_ok())
        });
    }
    guard.blocking_release().unwrap();
    cluster.assert_clean();
}

#[test]
fn connections_have_a_name_where_the_user_may_name_them() {
    for scripting in [Scripting::Auto, Scripting::Never] {
        let server = Server::builder().user("mute on >hush ~* &* +@all -client|setname").start();
        let named = |url: String| {
            let locks = Locks::builder().url(url).scripting(scripting).open().unwrap();
            let guard = take(locks.mutex("job").fenced());
            let names = server.run::<String>("CLIENT LIST TYPE normal");
            guard.blocking_release().unwrap();
            names.matches("name=redis-locks:").count()
        };
        eventually(PATIENCE, "they are named", || named(server.url()) >= 1);
        let mute = format!("redis://mute:hush@127.0.0.1:{}", server.port());
        assert_eq!(named(mute), 0);
    }
}

#[test]
fn a_port_where_something_else_answers_is_told_in_a_sentence() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 1024]);
            let _ =
                stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\nno\r\n");
        }
    });
    let locks = Locks::builder().url(url).outage(ms(500)).open().unwrap();
    let error = locks.mutex("job").blocking_acquire().map(drop).unwrap_err().to_string();
    assert!(error.contains("does not speak the Redis protocol"), "{error}");
    assert!(!error.contains('\n') && error.len() < 250, "{error}");
}

#[test]
fn an_address_that_comes_to_lead_to_another_node_costs_its_own_vote_only() {
    let nodes = Nodes::start(3);
    let locks = nodes.locks().open().unwrap();
    let held = take(locks.mutex("held"));
    nodes.proxies[2].redirect(nodes.servers[0].port());
    nodes.proxies[2].kill_all();
    let trouble = || locks.blocking_status("k").unwrap().server.nodes[2].trouble.clone();
    let is_noticed = || trouble().is_some_and(|what| what.contains("one server"));
    eventually(PATIENCE, "it is noticed", is_noticed);
    take(locks.mutex("new")).blocking_release().unwrap();
    held.blocking_release().unwrap();
}

#[test]
fn servers_that_swap_their_addresses_are_used_again() {
    let nodes = Nodes::start(3);
    let locks = nodes.locks().open().unwrap();
    let held = take(locks.mutex("held").ttl(ms(1_500)));
    eventually(PATIENCE, "all have it", || nodes.having("lock:held") == 3);
    for (proxy, server) in [(0, 1), (1, 0)] {
        nodes.proxies[proxy].redirect(nodes.servers[server].port());
        nodes.proxies[proxy].kill_all();
    }
    let all_vote =
        || locks.blocking_status("k").is_ok_and(|it| it.server.nodes.iter().all(|node| node.votes));
    eventually(PATIENCE, "all vote", all_vote);
    take(locks.mutex("new")).blocking_release().unwrap();
    holds_for(ms(1_600), "it is renewed", || is_held(&held));
    held.blocking_release().unwrap();
    nodes.assert_clean();
}
