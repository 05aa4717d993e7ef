use std::io::{BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// A recording of the commands that reach a server, as `MONITOR` tells them, those made by
/// scripts included; it ends when dropped.
#[derive(Debug)]
pub struct Monitor {
    stream: UnixStream,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Monitor {
    /// `own` marks the lines of this package's own connections.
    pub(crate) fn start(socket: &Path, own: &str, user: Option<&str>) -> Self {
        let mut stream = UnixStream::connect(socket).expect("the server accepts connections");
        let hello = user.map_or_else(|| "PING".to_owned(), |user| format!("AUTH {user} {user}"));
        let hello = format!("{hello}\r\nMONITOR\r\n");
        stream.write_all(hello.as_bytes()).expect("the server reads");
        let mut reader = BufReader::new(stream.try_clone().expect("a socket can be cloned"));
        let mut answer = String::new();
        for _ in 0..2 {
            reader.read_line(&mut answer).expect("the server answers");
        }
        assert!(answer.ends_with("\r\n+OK\r\n"), "MONITOR was refused: {answer}");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&lines);
        let own = format!("unix:{own}]");
        thread::spawn(move || {
            for line in reader.lines().map_while(Result::ok) {
                if !line.contains(&own) {
                    sink.lock().unwrap_or_else(PoisonError::into_inner).push(line);
                }
            }
        });
        Self { stream, lines }
    }

    /// All recorded so far, oldest first: `1700000000.123456 [0 127.0.0.1:4711] "GET" "key"`.
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many of them contain `text`.
    pub fn count(&self, text: &str) -> usize {
        self.lines().iter().filter(|line| line.contains(text)).count()
    }

    /// Forgets what was recorded so far.
    pub fn clear(&self) {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}
