//! A directory that asks a sentinel which says what the test wants.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use redis::Value;
use testbed::{Server, eventually};

use super::super::Terms;
use super::{NodeAccess, SentinelDirectory};
use crate::store::wire::Directory;

const PATIENCE: Duration = Duration::from_secs(20);

/// What a sentinel says of its primary and the others.
#[derive(Clone)]
struct Says {
    epoch: u64,
    primary: u16,
    others: Vec<SocketAddr>,
}

/// A sentinel that says this to all who ask.
fn sentinel(says: Arc<Mutex<Says>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let says = Arc::clone(&says);
            thread::spawn(move || answer(stream, &says));
        }
    });
    url
}

fn answer(mut stream: TcpStream, says: &Mutex<Says>) {
    let mut parser = redis::Parser::new();
    while let Ok(Value::Array(words)) = parser.parse_value(&mut stream) {
        let words: Vec<String> =
            words.iter().map(|word| redis::from_redis_value_ref(word).unwrap()).collect();
        let Says { epoch, primary, others } = says.lock().unwrap().clone();
        let reply = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", _] => {
                list(&["127.0.0.1", &primary.to_string()])
            }
            ["SENTINEL", "MASTER", _] => list(&["config-epoch", &epoch.to_string()]),
            ["SENTINEL", "SENTINELS", _] => {
                let one = |it: &SocketAddr| {
                    list(&["ip", &it.ip().to_string(), "port", &it.port().to_string()])
                };
                let each: Vec<_> = others.iter().map(one).collect();
                format!("*{}\r\n{}", each.len(), each.concat())
            }
            ["SUBSCRIBE", channel] => {
                format!("*3\r\n$9\r\nsubscribe\r\n${}\r\n{channel}\r\n:1\r\n", channel.len())
            }
            _ => "+OK\r\n".into(),
        };
        if stream.write_all(reply.as_bytes()).is_err() {
            return;
        }
    }
}

fn list(words: &[&str]) -> String {
    let each = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    format!("*{}\r\n{}", words.len(), each.collect::<String>())
}

/// The addresses at which a client has connected to the port of the second value. They take
/// connections and never answer.
fn silent() -> (Arc<Mutex<Vec<SocketAddr>>>, u16) {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let called = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&called);
    thread::spawn(move || {
        let mut open = Vec::new();
        for stream in listener.incoming().map_while(Result::ok) {
            noted.lock().unwrap().push(stream.local_addr().unwrap());
            open.push(stream);
        }
    });
    (called, port)
}

fn directory(url: &str) -> SentinelDirectory {
    let seeds = vec![redis::Client::open(url).unwrap()];
    let access = NodeAccess::like(&seeds[0], None);
    let terms = Terms::new("lock", "m", Duration::from_secs(2));
    SentinelDirectory::new("main".into(), seeds, (access.clone(), terms.clone()), (access, terms))
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn a_sentinel_that_names_thousands_of_others_opens_few_connections() {
    let server = Server::start();
    let (called, port) = silent();
    let others = (0..3_000_u16)
        .map(|number| {
            let [high, low] = number.to_be_bytes();
            SocketAddr::from(([127, 7, high, low], port))
        })
        .collect();
    let says = Says { epoch: 1, primary: server.port(), others };
    let directory = Arc::new(directory(&sentinel(Arc::new(Mutex::new(says)))));
    runtime().block_on(async {
        let watched = Arc::clone(&directory);
        let changed = tokio::spawn(async move { watched.changed().await });
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(3) {
            // Without a majority the primary may be refused.
            let _ = directory.look(Vec::new()).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        changed.abort();
    });
    let called = called.lock().unwrap().clone();
    let addresses: BTreeSet<_> = called.iter().collect();
    assert!((1..=24).contains(&addresses.len()), "{} addresses", addresses.len());
    assert!(called.len() < 24 * 12, "{} connections", called.len());
}

#[test]
fn sentinels_that_are_named_no_more_are_left_alone_and_are_no_part_of_the_majority() {
    let server = Server::start();
    let (called, port) = silent();
    let gone = (1..=3).map(|number| SocketAddr::from(([127, 7, 0, number], port))).collect();
    let says = Arc::new(Mutex::new(Says { epoch: 7, primary: server.port(), others: gone }));
    let directory = directory(&sentinel(Arc::clone(&says)));
    let runtime = runtime();
    // A look may come to nothing: on a busy machine the sentinel that answers takes longer than a look
    // waits for it.
    let is_answered = || runtime.block_on(directory.look(Vec::new())).is_ok();
    eventually(PATIENCE, "those that are named are asked", || {
        is_answered() && !called.lock().unwrap().is_empty()
    });
    // The sentinels were set up anew, and count their epochs from the beginning.
    *says.lock().unwrap() = Says { epoch: 0, primary: server.port(), others: Vec::new() };
    eventually(PATIENCE, "the newcomers are the majority", is_answered);
    // This connection is the last of those that may be noted late.
    let last = TcpStream::connect(("127.7.0.4", port)).unwrap();
    let is_noted = || called.lock().unwrap().contains(&last.peer_addr().unwrap());
    eventually(PATIENCE, "all calls before are noted", is_noted);
    let before = called.lock().unwrap().len();
    let (start, mut answered) = (Instant::now(), 0);
    while start.elapsed() < Duration::from_secs(2) || answered < 20 {
        assert!(start.elapsed() < PATIENCE, "only {answered} looks were answered");
        answered += u32::from(is_answered());
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(called.lock().unwrap().len(), before, "those that have gone are called no more");
}
