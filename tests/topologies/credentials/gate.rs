//! A proxy that closes each connection that has not sent a valid password before the last one expired.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::vault::{MARK, Vault};

pub(super) struct Gate {
    port: u16,
    sessions: Arc<Mutex<Vec<Arc<Mutex<Session>>>>>,
}

/// One connection, by the passwords that went over it.
pub(super) struct Session {
    client: TcpStream,
    pub(super) begun: Instant,
    /// The number of the last password, and how many different ones there were.
    last: usize,
    pub(super) passwords: usize,
    pub(super) is_open: bool,
    /// Whether it was closed because its password had expired.
    pub(super) has_expired: bool,
}

impl Gate {
    pub(super) fn before(upstream: u16, vault: &Arc<Vault>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let sessions: Arc<Mutex<Vec<Arc<Mutex<Session>>>>> = Arc::default();
        let all = Arc::clone(&sessions);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                all.lock().unwrap().push(Session::open(client, upstream));
            }
        });
        let (all, vault) = (Arc::clone(&sessions), Arc::clone(vault));
        thread::spawn(move || {
            loop {
                for session in &*all.lock().unwrap() {
                    session.lock().unwrap().close_if_expired(&vault);
                }
                thread::sleep(Duration::from_millis(10));
            }
        });
        Self { port, sessions }
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(super) fn each(&self, mut look: impl FnMut(&Session)) {
        let sessions = self.sessions.lock().unwrap();
        sessions.iter().for_each(|session| look(&session.lock().unwrap()));
    }
}

impl Session {
    fn open(client: TcpStream, upstream: u16) -> Arc<Mutex<Self>> {
        let server = TcpStream::connect(("127.0.0.1", upstream)).unwrap();
        let session = Arc::new(Mutex::new(Self {
            client: client.try_clone().unwrap(),
            begun: Instant::now(),
            last: 0,
            passwords: 0,
            is_open: true,
            has_expired: false,
        }));
        client.set_nodelay(true).unwrap();
        server.set_nodelay(true).unwrap();
        let ends = (client.try_clone().unwrap(), server.try_clone().unwrap());
        let up = Arc::clone(&session);
        let mut heard = Vec::new();
        thread::spawn(move || {
            pump(&client, &server, |bytes| {
                heard.extend_from_slice(bytes);
                up.lock().unwrap().hear(&heard);
                // A password may come in two pieces.
                heard.drain(..heard.len().saturating_sub(2 * MARK.len()));
            });
            up.lock().unwrap().is_open = false;
        });
        thread::spawn(move || pump(&ends.1, &ends.0, |_| {}));
        session
    }

    fn hear(&mut self, bytes: &[u8]) {
        for at in 0..bytes.len() {
            let rest = bytes[at..].strip_prefix(MARK.as_bytes());
            let number =
                rest.and_then(|rest| std::str::from_utf8(rest.get(..4)?).ok()?.parse().ok());
            if let Some(number) = number.filter(|number| *number > self.last) {
                (self.last, self.passwords) = (number, self.passwords + 1);
            }
        }
    }

    fn close_if_expired(&mut self, vault: &Vault) {
        if self.is_open && self.last > 0 && vault.has_expired(self.last) {
            (self.is_open, self.has_expired) = (false, true);
            let _ = self.client.shutdown(Shutdown::Both);
        }
    }
}

fn pump(mut from: &TcpStream, mut to: &TcpStream, mut look: impl FnMut(&[u8])) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        look(&buffer[..read]);
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
