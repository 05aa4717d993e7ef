use std::env;
use std::sync::Mutex;

use super::{Mode, Server};
use crate::binary::ServerBinary;
use crate::clock_shim::ClockShim;
use crate::folder::folder;
use crate::host::Host;
use crate::port::Port;
use crate::tls::Certificates;

/// How to start a [`Server`].
#[derive(Clone, Debug, Default)]
#[must_use = "nothing runs before start()"]
pub struct ServerBuilder {
    binary: Option<ServerBinary>,
    arguments: Vec<String>,
    shim: Option<ClockShim>,
    mode: Mode,
    host: Host,
    tls: Option<Certificates>,
}

impl ServerBuilder {
    pub(super) fn new() -> Self {
        let clustered = env::var_os("TESTBED_CLUSTER").is_some();
        let mode = if clustered { Mode::OnlyNode } else { Mode::Alone };
        Self { mode, ..Self::default() }
    }

    /// This program, not just any: see [`ServerBinary::valkey`].
    pub fn binary(mut self, binary: ServerBinary) -> Self {
        self.binary = Some(binary);
        self
    }

    /// With an append-only file: what was answered survives [`Server::kill9`].
    ///
    /// It is written and synced before each answer. Synced once a second, a server puts off even the
    /// write for as long as a slow disk still works at the sync before it.
    pub fn aof(self) -> Self {
        self.arguments(["--appendonly", "yes", "--appendfsync", "always"])
    }

    /// Further options of the server itself: `.arguments(["--maxmemory-policy", "noeviction"])`.
    pub fn arguments<S: Into<String>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// In cluster mode, as the only node, which has all slots: scripts may use keys of one slot only.
    ///
    /// With `TESTBED_CLUSTER` in the environment every server is one. It takes two seconds more to
    /// start.
    pub fn cluster(self) -> Self {
        self.mode(Mode::OnlyNode)
    }

    pub(crate) fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    pub(crate) fn host(mut self, host: Host) -> Self {
        self.host = host;
        self
    }

    /// One more user, in the words of `ACL SETUSER`: `app on >secret ~lock:* &* +@all`. Words for rights that
    /// an older server gives to everybody are left out there. Before Redis 6.0 there are no users.
    pub fn user(self, rights: &str) -> Self {
        self.arguments(["--user"]).arguments(rights.split_whitespace())
    }

    /// A command under another name, for everybody; with an empty name it is gone.
    ///
    /// `INFO`, `PING` and `CLIENT` must stay: the scenery itself uses them.
    pub fn rename_command(self, command: &str, name: &str) -> Self {
        self.arguments(["--rename-command", command, name])
    }

    /// Listens on one more port, which speaks TLS with these certificates.
    ///
    /// The program must be one for which [`ServerBinary::speaks_tls`] holds.
    pub fn tls(mut self, certificates: &Certificates) -> Self {
        self.tls = Some(certificates.clone());
        self
    }

    /// A server whose wall clock the test moves.
    pub fn clock(mut self, shim: &ClockShim) -> Self {
        self.shim = Some(shim.clone());
        self
    }

    /// Starts it, and returns when it answers. Panics with its log when it does not.
    pub fn start(self) -> Server {
        let binary = self.binary.clone().unwrap_or_else(ServerBinary::any);
        let mut reason = String::new();
        // A program that is no test may take a port between our look and the server's bind.
        for _ in 0..10 {
            let server = self.prepare(&binary);
            match server.launch() {
                Ok(()) => return server,
                Err(error) => reason = format!("{error}\n{}", server.log()),
            }
        }
        panic!("{binary} does not start: {reason}");
    }

    /// A server on ports of its own.
    fn prepare(&self, binary: &ServerBinary) -> Server {
        let mut arguments = self.arguments.clone();
        arguments.retain(|argument| binary.knows_right(argument));
        let mut ports = vec![Port::free()];
        if matches!(self.mode, Mode::OnlyNode | Mode::Node) {
            arguments.extend(["--cluster-enabled", "yes"].map(Into::into));
            if binary.version() >= (7, 0, 0) {
                let bus = Port::free();
                arguments.extend(["--cluster-port".into(), bus.number().to_string()]);
                ports.push(bus);
            } else {
                ports = Port::free_with_bus().into();
            }
        }
        let port = ports[0].number();
        let tls_port = self.tls.as_ref().map(|certificates| {
            let tls_port = Port::free();
            let mut options = vec![("tls-port", tls_port.number().to_string())];
            options.extend(certificates.server_options());
            for (name, value) in options {
                match self.mode {
                    // Its arguments are the lines of a file.
                    Mode::Sentinel => arguments.push(format!("{name} {value}")),
                    _ => arguments.extend([format!("--{name}"), value]),
                }
            }
            let number = tls_port.number();
            ports.push(tls_port);
            number
        });
        let server = Server {
            binary: binary.clone(),
            dir: folder(),
            host: self.host.clone(),
            port,
            _ports: ports,
            arguments,
            mode: self.mode,
            shim: self.shim.clone(),
            tls_port,
            running: Mutex::new(None),
            admin: Mutex::new(None),
        };
        if self.mode == Mode::Sentinel {
            server.write_sentinel_file();
        }
        server
    }
}
