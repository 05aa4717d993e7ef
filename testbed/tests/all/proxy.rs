//! Each fault of the proxy is what it says.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use testbed::{Proxy, Server, eventually};

const PATIENCE: Duration = Duration::from_secs(5);

/// A connection that speaks just enough, and can wait for an answer with a bound.
struct Client(TcpStream);

impl Client {
    fn to(proxy: &Proxy) -> Self {
        Self::try_to(proxy).unwrap()
    }

    fn try_to(proxy: &Proxy) -> std::io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", proxy.port()))?;
        stream.set_nodelay(true)?;
        Ok(Self(stream))
    }

    fn send(&mut self, line: &str) {
        self.0.write_all(format!("{line}\r\n").as_bytes()).unwrap();
    }

    /// What arrives within `timeout`; empty when the other side hung up.
    fn hear(&mut self, timeout: Duration) -> Option<String> {
        self.0.set_read_timeout(Some(timeout)).unwrap();
        let mut buffer = [0; 4096];
        match self.0.read(&mut buffer) {
            Ok(read) => Some(String::from_utf8_lossy(&buffer[..read]).into_owned()),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => None,
            Err(_) => Some(String::new()),
        }
    }

    fn ask(&mut self, line: &str) -> Option<String> {
        self.send(line);
        self.hear(PATIENCE)
    }
}

fn pong() -> Option<String> {
    Some("+PONG\r\n".to_owned())
}

fn silent(client: &mut Client) -> bool {
    client.hear(Duration::from_millis(150)).is_none()
}

#[test]
fn passes() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let mut client = Client::to(&proxy);
    assert_eq!(client.ask("PING"), pong());
    let value = "x".repeat(3_000_000);
    let mut driver = redis::Client::open(proxy.url()).unwrap().get_connection().unwrap();
    redis::cmd("SET").arg("big").arg(&value).query::<()>(&mut driver).unwrap();
    assert_eq!(redis::cmd("GET").arg("big").query::<String>(&mut driver).unwrap(), value);
    assert_eq!(proxy.count(), 2);
}

#[test]
fn delays_each_direction_and_keeps_the_order() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let mut client = Client::to(&proxy);
    for delay in [Proxy::delay_up, Proxy::delay_down] {
        delay(&proxy, Duration::from_millis(100));
        let start = Instant::now();
        assert_eq!(client.ask("PING"), pong());
        let took = start.elapsed();
        assert!(took >= Duration::from_millis(100), "{took:?}");
        assert!(took < PATIENCE, "{took:?}");
        proxy.pass();
    }
    proxy.delay_up(Duration::from_millis(100));
    client.send("SET order first");
    proxy.pass();
    client.send("SET order second");
    eventually(PATIENCE, "the later command wins", || {
        server.get("order").as_deref() == Some("second")
    });
}

#[test]
fn a_delay_is_a_delay_and_no_brake() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let mut client = Client::to(&proxy);
    // One after the other they would take 5 s.
    proxy.delay_up(Duration::from_millis(500));
    let start = Instant::now();
    for _ in 0..10 {
        client.send("INCR count");
        std::thread::sleep(Duration::from_millis(10));
    }
    eventually(PATIENCE, "all have arrived", || server.get("count").as_deref() == Some("10"));
    assert!(start.elapsed() < Duration::from_millis(3_000), "{:?}", start.elapsed());
}

#[test]
fn a_hole_holds_back_and_lets_go() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let mut client = Client::to(&proxy);
    proxy.hole_down();
    client.send("SET key 1");
    assert!(silent(&mut client));
    assert!(server.exists("key"));
    proxy.pass();
    assert_eq!(client.hear(PATIENCE), Some("+OK\r\n".to_owned()));

    proxy.hole_up();
    client.send("SET late 1");
    assert!(silent(&mut client));
    drop(client);
    assert!(!server.exists("late"));
    proxy.pass();
    eventually(PATIENCE, "what its sender gave up arrives", || server.exists("late"));
}

#[test]
fn faults_on_existing_connections_spare_new_ones() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let mut old = Client::to(&proxy);
    assert_eq!(old.ask("PING"), pong());
    proxy.existing().hole();
    old.send("PING");
    assert!(silent(&mut old));
    assert_eq!(Client::to(&proxy).ask("PING"), pong());
    proxy.pass();
    assert_eq!(old.hear(PATIENCE), pong());
}

#[test]
fn connections_can_be_chosen() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let mut subscriber = Client::to(&proxy);
    subscriber.ask("SUBSCRIBE news").unwrap();
    let mut other = Client::to(&proxy);
    assert_eq!(other.ask("PING"), pong());
    let chosen = proxy.only(|connection| connection.subscriber);
    assert_eq!(chosen.count(), 1);
    chosen.kill();
    assert_eq!(subscriber.hear(PATIENCE), Some(String::new()));
    assert_eq!(other.ask("PING"), pong());
    let open: Vec<bool> = proxy.connections().iter().map(|connection| connection.open).collect();
    assert_eq!(open, [false, true]);
}

#[test]
fn cuts_a_reply_once() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let mut client = Client::to(&proxy);
    proxy.cut_reply_to("incr");
    assert_eq!(client.ask("PING"), pong());
    assert_eq!(client.ask("INCR count"), Some(String::new()));
    assert_eq!(server.get("count").as_deref(), Some("1"));
    assert_eq!(proxy.cuts(), 1);
}

#[test]
fn a_cut_is_not_repeated_on_other_connections() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let (mut one, mut other) = (Client::to(&proxy), Client::to(&proxy));
    proxy.cut_reply_once();
    assert_eq!(one.ask("PING"), Some(String::new()));
    assert_eq!(other.ask("PING"), pong());
    assert_eq!(Client::to(&proxy).ask("PING"), pong());
    assert_eq!(proxy.cuts(), 1);
}

#[test]
fn cuts_after_some_bytes() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    proxy.cut_after(9);
    let mut client = Client::to(&proxy);
    assert_eq!(client.ask("PING"), pong());
    assert_eq!(client.ask("PING"), Some("+P".to_owned()));
    assert_eq!(client.hear(PATIENCE), Some(String::new()));
}

#[test]
fn splits_into_single_bytes() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    proxy.split(1);
    // A client that reads late finds more than one byte.
    eventually(PATIENCE, "the first byte comes alone", || {
        Client::to(&proxy).ask("PING") == Some("+".to_owned())
    });
}

#[test]
fn refuses_and_accepts_again() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let mut old = Client::to(&proxy);
    assert_eq!(old.ask("PING"), pong());
    proxy.refuse();
    assert!(Client::try_to(&proxy).is_err());
    assert_eq!(old.ask("PING"), pong());
    proxy.pass();
    assert_eq!(Client::to(&proxy).ask("PING"), pong());
}

#[test]
fn accepts_and_ignores() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    proxy.accept_and_ignore();
    let mut client = Client::to(&proxy);
    client.send("PING");
    assert!(silent(&mut client));
    proxy.pass();
    assert_eq!(Client::to(&proxy).ask("PING"), pong());
}

#[test]
fn leads_elsewhere() {
    let (server, other) = (Server::start(), Server::start());
    other.run::<()>("SET name other PX 60000");
    let proxy = Proxy::to(server.port());
    let mut old = Client::to(&proxy);
    assert_eq!(old.ask("PING"), pong());
    proxy.redirect(other.port());
    assert_eq!(old.ask("GET name"), Some("$-1\r\n".to_owned()));
    assert_eq!(Client::to(&proxy).ask("GET name"), Some("$5\r\nother\r\n".to_owned()));
}

#[test]
fn kills_all() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let mut client = Client::to(&proxy);
    assert_eq!(client.ask("PING"), pong());
    proxy.kill_all();
    assert_eq!(client.hear(PATIENCE), Some(String::new()));
    assert_eq!(Client::to(&proxy).ask("PING"), pong());
}

/// A process may have only so many open files.
#[cfg(target_os = "linux")]
#[test]
fn thousands_of_closed_connections_keep_no_sockets() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let open_files = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    proxy.cut_reply_once();
    assert_eq!(Client::to(&proxy).ask("PING"), Some(String::new()));
    let before = open_files();
    for _ in 0..2_000 {
        assert_eq!(Client::to(&proxy).ask("PING"), pong());
    }
    assert_eq!(proxy.count(), 2_001);
    // Other tests may run in this process as well.
    eventually(PATIENCE, "their sockets are closed", || open_files() < before + 200);
    assert!(proxy.connections().len() <= 1_000, "{} are remembered", proxy.connections().len());
    assert_eq!(proxy.cuts(), 1, "also of those that are forgotten");
}
