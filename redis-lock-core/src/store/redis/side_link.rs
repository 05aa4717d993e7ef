//! Connections beside the one for commands, with one command at a time.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::driver_wire::DriverLine;
use super::input::Input;
use super::probe::field;
use super::socket::Socket;
use super::{Terms, Way, connect, decode};
use crate::domain::error::{Fault, FaultClass};
use crate::store::link_slot::{LinkSlot, SlotWatch};
use crate::store::{Readiness, Watcher};

/// Where a new connection is left for the reader.
pub(super) type LineSlot = LinkSlot<DirectLine>;

/// Makes the connection.
pub(super) struct SideLink {
    way: Way,
    terms: Terms,
    /// The run id of the server that gives the answers.
    run: Option<String>,
    /// How long connecting may take.
    time_limit: Duration,
}

impl SideLink {
    pub(super) fn new(way: Way, terms: Terms, run: Option<String>, time_limit: Duration) -> Self {
        Self { way, terms, run, time_limit }
    }

    /// Connects whenever that is wanted, until the sender is dropped. Each time leaves something in the
    /// slot, and soon.
    pub(super) async fn serve(self, mut wanted: mpsc::UnboundedReceiver<()>, slot: Arc<LineSlot>) {
        while wanted.recv().await.is_some() {
            let made = timeout(self.time_limit, self.connected()).await;
            let late = |_| Err(refused("no second connection to the server in time"));
            let made = made.unwrap_or_else(late);
            slot.put(made.map(|line| {
                let watcher = line.watcher();
                (line, Some(watcher))
            }));
        }
    }

    async fn connected(&self) -> Result<DirectLine, Fault> {
        let client = self.way.client().await?;
        let info = client.get_connection_info();
        let introduced = connect::connect(info).await;
        if let Some(mut introduced) = introduced.map_err(decode::unreachable)? {
            self.check(&mut introduced.driver).await?;
            return Ok(DirectLine::over(introduced.into_socket().await));
        }
        let connecting = connect::driver(&client, &self.terms, connect::config());
        let mut driver = connecting.await.map_err(decode::unreachable)?;
        self.check(&mut driver).await?;
        Ok(DirectLine::by(driver))
    }

    /// Answers may come from a server that was replaced, and whose data may be gone.
    async fn check(&self, driver: &mut MultiplexedConnection) -> Result<(), Fault> {
        let mut question = redis::pipe();
        question.cmd("INFO").arg("server");
        question.add_command(self.terms.name_connection());
        let answers = driver.send_packed_commands(&question, 0, 2).await;
        let answers = answers.map_err(decode::unreachable)?;
        let info = answers.first().and_then(super::nodes::text).unwrap_or_default();
        match (&self.run, field(&info, "run_id")) {
            (Some(own), Some(run)) if own != run => {
                Err(refused("another server is at this address by now"))
            }
            _ => Ok(()),
        }
    }
}

fn refused(what: &str) -> Fault {
    Fault::new(FaultClass::Refused, what)
}

/// Also watches the connections that are left in the slot.
pub(super) fn watch_beside(inner: Watcher, slot: Arc<LineSlot>) -> Watcher {
    Arc::new(move || {
        let (inner, line) = (inner()?, SlotWatch::new(Arc::clone(&slot)));
        Ok(Box::new(SideWatch { inner, line }) as _)
    })
}

/// Ready when one of the two connections has something.
struct SideWatch {
    inner: Box<dyn Readiness>,
    line: SlotWatch<DirectLine>,
}

impl Readiness for SideWatch {
    fn poll_ready(&self, context: &mut Context<'_>, sending: bool) -> Poll<io::Result<()>> {
        match self.inner.poll_ready(context, sending) {
            Poll::Pending => self.line.poll_ready(context, false),
            ready @ Poll::Ready(_) => ready,
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs::File;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use testbed::WakeLog;
    use tokio::runtime::Builder;

    use super::*;
    use crate::store::redis::socket::Socket;

    struct Silent;

    impl Readiness for Silent {
        fn poll_ready(&self, _: &mut Context<'_>, _: bool) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    #[test]
    fn a_connection_that_cannot_be_watched_does_not_keep_the_first_one_from_it() {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let _entered = runtime.enter();
        // No runtime can watch a file.
        let file = UnixStream::from(OwnedFd::from(File::open("Cargo.toml").unwrap()));
        file.set_nonblocking(true).unwrap();
        let slot = Arc::new(LineSlot::default());
        let line = DirectLine::over(Socket::Unix(Arc::new(file)));
        let line_watcher = line.watcher();
        slot.put(Ok((line, Some(line_watcher))));
        assert!(slot.watcher().is_some_and(|(_, watcher)| watcher().is_err()));
        let watcher = watch_beside(Arc::new(|| Ok(Box::new(Silent) as _)), slot);
        let (readiness, wakes) = (watcher().unwrap(), WakeLog::new());
        let task = wakes.waker();
        let mut context = Context::from_waker(&task);
        assert!(readiness.poll_ready(&mut context, false).is_ready(), "there is a new connection");
        assert!(readiness.poll_ready(&mut context, false).is_pending());
    }
}

/// None of its methods blocks.
pub(super) enum DirectLine {
    Own(OwnLine),
    /// Only the driver can use it.
    Driver(DriverLine),
}

/// A line over a socket of our own.
pub(super) struct OwnLine {
    socket: Socket,
    input: Input,
}

impl DirectLine {
    pub(super) fn over(socket: Socket) -> Self {
        Self::Own(OwnLine { socket, input: Input::new() })
    }

    /// To be called on the engine's runtime.
    pub(super) fn by(driver: MultiplexedConnection) -> Self {
        Self::Driver(DriverLine::new(driver))
    }

    pub(super) fn watcher(&self) -> Watcher {
        match self {
            Self::Own(line) => line.socket.watcher(),
            Self::Driver(line) => line.watcher(),
        }
    }

    /// Sends these commands.
    ///
    /// # Errors
    /// Also when the socket does not take them all now.
    pub(super) fn send(&mut self, cmds: impl IntoIterator<Item = Cmd>) -> io::Result<()> {
        match self {
            Self::Own(line) => line.send(cmds),
            Self::Driver(line) => cmds.into_iter().try_for_each(|cmd| line.send(cmd)),
        }
    }

    /// Takes in what has arrived. Returns whether that was anything.
    pub(super) fn fill(&mut self) -> io::Result<bool> {
        match self {
            Self::Own(line) => line.fill(),
            Self::Driver(line) => Ok(line.fill()),
        }
    }

    /// The next reply, if it has arrived.
    pub(super) fn next_reply(&mut self) -> Result<Option<Value>, String> {
        match self {
            Self::Own(line) => line.input.next_reply(),
            Self::Driver(line) => line.next_reply().transpose().map_err(|error| error.to_string()),
        }
    }
}

impl OwnLine {
    fn send(&mut self, cmds: impl IntoIterator<Item = Cmd>) -> io::Result<()> {
        let mut bytes = Vec::new();
        cmds.into_iter().for_each(|cmd| cmd.write_packed_command(&mut bytes));
        let mut sent = 0;
        while let Some(rest) = bytes.get(sent..).filter(|rest| !rest.is_empty()) {
            match self.socket.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn fill(&mut self) -> io::Result<bool> {
        let mut received = false;
        loop {
            let filled = self.input.fill(&self.socket)?;
            received |= filled.received;
            if !filled.more {
                return Ok(received);
            }
        }
    }
}
