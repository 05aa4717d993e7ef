//! A service on a free port, and a client that shows what came over the wire.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use testbed::PATIENCE;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

/// Serves until the runtime of the test ends.
pub(crate) async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// What a client has received, byte for byte.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Received {
    pub(crate) status: u16,
    /// In the order of the wire, with names in small letters.
    pub(crate) headers: Vec<(String, String)>,
    /// Without the framing of chunks.
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<(String, String)>,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(it, _)| it == name).map(|(_, value)| &**value)
    }

    pub(crate) fn text(&self) -> &str {
        str::from_utf8(&self.body).unwrap()
    }

    fn parse(bytes: &[u8]) -> Self {
        let (head, rest) = cut(bytes, b"\r\n\r\n").expect("a head");
        let head = String::from_utf8_lossy(head);
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).unwrap();
        let headers = fields(lines);
        let mut this = Self { status, headers, body: Vec::new(), trailers: Vec::new() };
        if this.header("transfer-encoding") == Some("chunked") {
            this.read_chunks(rest);
        } else {
            this.body = rest.to_vec();
        }
        this
    }

    fn read_chunks(&mut self, mut rest: &[u8]) {
        loop {
            let (size, after) = cut(rest, b"\r\n").expect("the size of a chunk");
            let size = usize::from_str_radix(str::from_utf8(size).unwrap(), 16).unwrap();
            if size == 0 {
                self.trailers = fields(str::from_utf8(after).unwrap().split("\r\n"));
                return;
            }
            self.body.extend(&after[..size]);
            rest = &after[size + 2..];
        }
    }
}

fn fields<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<(String, String)> {
    let pairs = lines.filter_map(|line| line.split_once(':'));
    pairs.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned())).collect()
}

fn cut<'a>(bytes: &'a [u8], end: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = bytes.windows(end.len()).position(|it| it == end)?;
    Some((&bytes[..at], &bytes[at + end.len()..]))
}

/// A request, for a connection of its own.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    head: String,
    body: Vec<u8>,
}

impl Sent {
    pub(crate) fn new(method: &str, path: &str) -> Self {
        let head = format!("{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n");
        Self { head, body: Vec::new() }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.head.push_str(&format!("{name}: {value}\r\n"));
        self
    }

    pub(crate) fn body(self, body: impl Into<Vec<u8>>) -> Self {
        Self { body: body.into(), ..self }
    }

    /// Sends it, and keeps the connection.
    pub(crate) async fn start(&self, to: SocketAddr) -> std::io::Result<TcpStream> {
        let mut stream = TcpStream::connect(to).await?;
        let length = self.body.len();
        let mut bytes = format!("{}content-length: {length}\r\n\r\n", self.head).into_bytes();
        bytes.extend(&self.body);
        stream.write_all(&bytes).await?;
        Ok(stream)
    }

    /// The response; an error when the connection ends without one.
    pub(crate) async fn try_send(&self, to: SocketAddr) -> std::io::Result<Received> {
        let mut stream = self.start(to).await?;
        let mut bytes = Vec::new();
        timeout(PATIENCE, stream.read_to_end(&mut bytes)).await??;
        if bytes.is_empty() {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Received::parse(&bytes))
    }

    pub(crate) async fn send(&self, to: SocketAddr) -> Received {
        self.try_send(to).await.unwrap()
    }
}

/// Waits until something has happened, and fails when it does not.
pub(crate) async fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let watch = async {
        while !happened() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(timeout(PATIENCE, watch).await.is_ok(), "{what}");
}
