//! What a connection sends, in its order, over a socket that takes little at a time.

use std::future::poll_fn;
use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Builder;

use super::RedisWire;
use super::conversation::Conversation;
use super::line::ServerLine;
use super::listen::Channel;
use super::probe::Found;
use super::socket::Socket;
use crate::domain::kind::Kind;
use crate::domain::names::Names;
use crate::store::{Command, Verb, Wire};

/// More than a socket takes at once.
const MANY: u64 = 5_000;

fn wire() -> (RedisWire, UnixStream) {
    let (socket, there) = socket();
    let conversation =
        Conversation::new(Found::default(), Arc::default(), Channel::default(), None);
    (RedisWire { line: ServerLine::over(socket, None), conversation }, there)
}

fn socket() -> (Socket, UnixStream) {
    let (here, there) = UnixStream::pair().unwrap();
    here.set_nonblocking(true).unwrap();
    there.set_nonblocking(true).unwrap();
    (here.into(), there)
}

fn push(wire: &mut RedisWire, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let names = Names::new("lock", format!("lock:{}-{number:06}", "k".repeat(100)));
        let verb = Verb::Take { token: "t".into(), ttl: Some(Duration::from_secs(1)) };
        let timeout = Duration::from_secs(1);
        wire.push(number, Command { names, kind: Kind::Mutex, verb, timeout });
    }
}

fn read(there: &mut UnixStream, into: &mut Vec<u8>) {
    match there.read_to_end(into) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
        other => panic!("{other:?}"),
    }
}

/// The numbers of the commands that arrived.
fn numbers(bytes: &[u8]) -> Vec<u64> {
    let text = std::str::from_utf8(bytes).unwrap();
    text.split("k-").skip(1).map(|rest| rest[..6].parse().unwrap()).collect()
}

#[test]
fn what_is_pushed_behind_what_the_socket_did_not_take_follows_it() {
    let (mut wire, mut there) = wire();
    let mut arrived = Vec::new();
    push(&mut wire, 0..MANY);
    wire.flush().unwrap();
    assert!(!wire.is_flushed(), "the socket is full");
    push(&mut wire, MANY..MANY + 10);
    while !wire.is_flushed() {
        read(&mut there, &mut arrived);
        wire.flush().unwrap();
    }
    read(&mut there, &mut arrived);
    assert_eq!(numbers(&arrived), (0..MANY + 10).collect::<Vec<_>>());
}

#[test]
fn a_buffer_that_is_never_empty_does_not_grow() {
    let (mut wire, mut there) = wire();
    let (mut arrived, mut next) = (Vec::new(), 0);
    let mut push_some = |wire: &mut RedisWire, count: u64| {
        push(wire, next..next + count);
        next += count;
    };
    push_some(&mut wire, MANY);
    let backlog = wire.buffered();
    let size = backlog / MANY as usize;
    for _ in 0..200 {
        wire.flush().unwrap();
        assert!(!wire.is_flushed(), "something is left in each round");
        arrived.clear();
        read(&mut there, &mut arrived);
        push_some(&mut wire, (arrived.len() / size) as u64);
    }
    assert!(wire.buffered() < 2 * backlog, "{} bytes of {backlog}", wire.buffered());
}

/// A quorum polls all connections at once.
#[test]
fn only_a_connection_with_unsent_bytes_is_ready_when_its_socket_takes_more() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let ((mut full, mut there), (mut idle, _there)) = (wire(), wire());
    push(&mut full, 0..MANY);
    full.flush().unwrap();
    assert!(!full.is_flushed() && idle.is_flushed());
    read(&mut there, &mut Vec::new());
    let ready = poll_fn(|context| {
        assert!(idle.poll_ready(context).is_pending(), "it has nothing to send");
        full.poll_ready(context)
    });
    runtime.block_on(ready).unwrap();
}
