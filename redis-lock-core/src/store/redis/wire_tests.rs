//! What a connection sends, in its order, over a socket that takes little at a time.

use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use super::channel::Channel;
use super::conversation::Conversation;
use super::probe::Found;
use super::socket::Socket;
use super::wire::RedisWire;
use crate::domain::kind::Kind;
use crate::domain::names::Names;
use crate::store::{Command, Verb, Wire};

/// More than a socket takes at once.
const MANY: u64 = 5_000;

fn wire() -> (RedisWire, UnixStream, Socket) {
    let (socket, there) = socket();
    let conversation =
        Conversation::new(Found::default(), Arc::default(), Channel::default(), None);
    (RedisWire::new(socket.clone(), conversation), there, socket)
}

fn socket() -> (Socket, UnixStream) {
    let (here, there) = UnixStream::pair().unwrap();
    here.set_nonblocking(true).unwrap();
    there.set_nonblocking(true).unwrap();
    (Socket::Unix(Arc::new(here)), there)
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
fn what_is_pushed_while_others_send_follows_what_the_socket_did_not_take() {
    let (mut wire, mut there, _) = wire();
    let mut arrived = Vec::new();
    push(&mut wire, 0..MANY);
    let mut output = wire.take_output().unwrap();
    assert!(wire.is_flushed() && wire.take_output().is_none(), "one at a time sends");
    output.send();
    assert!(!output.is_sent(), "the socket is full");
    push(&mut wire, MANY..MANY + 10);
    wire.flush().unwrap();
    read(&mut there, &mut arrived);
    wire.put_back(output).unwrap();
    while !wire.is_flushed() {
        // It may be sent in either way.
        match wire.take_output() {
            Some(mut output) if arrived.len() % 2 == 0 => {
                output.send();
                wire.put_back(output).unwrap();
            }
            Some(output) => wire.put_back(output).unwrap(),
            None => unreachable!("something is left"),
        }
        wire.flush().unwrap();
        read(&mut there, &mut arrived);
    }
    read(&mut there, &mut arrived);
    assert_eq!(numbers(&arrived), (0..MANY + 10).collect::<Vec<_>>());
}

#[test]
fn what_was_taken_is_not_sent_after_the_end_of_the_connection() {
    // Those who watch it keep the socket.
    let (mut wire, mut there, _watched) = wire();
    push(&mut wire, 0..1);
    let mut output = wire.take_output().unwrap();
    drop(wire);
    output.send();
    let mut arrived = Vec::new();
    read(&mut there, &mut arrived);
    assert!(arrived.is_empty() && !output.is_sent());
}

#[test]
fn a_buffer_that_is_never_empty_does_not_grow() {
    let (mut wire, mut there, _) = wire();
    let (mut arrived, mut next) = (Vec::new(), 0);
    let mut push_some = |wire: &mut RedisWire, count: u64| {
        push(wire, next..next + count);
        next += count;
    };
    push_some(&mut wire, MANY);
    let backlog = wire.buffered();
    let size = backlog / MANY as usize;
    for round in 0..200 {
        match wire.take_output() {
            Some(mut output) if round % 2 == 0 => {
                output.send();
                wire.put_back(output).unwrap();
            }
            Some(output) => wire.put_back(output).unwrap(),
            None => panic!("something is left in each round"),
        }
        wire.flush().unwrap();
        arrived.clear();
        read(&mut there, &mut arrived);
        push_some(&mut wire, (arrived.len() / size) as u64);
    }
    assert!(wire.buffered() < 2 * backlog, "{} bytes of {backlog}", wire.buffered());
}
