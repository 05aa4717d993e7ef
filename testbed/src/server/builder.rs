use std::{env, sync::Mutex};

use tempfile::TempDir;

use super::Server;
use crate::{clock_shim::ClockShim, find::ServerBinary, port::free_port};

/// How to start a [`Server`].
#[derive(Clone, Debug, Default)]
#[must_use = "nothing runs before start()"]
pub struct ServerBuilder {
    binary: Option<ServerBinary>,
    arguments: Vec<String>,
    shim: Option<ClockShim>,
    cluster: bool,
}

impl ServerBuilder {
    pub(super) fn new() -> Self {
        Self { cluster: env::var_os("TESTBED_CLUSTER").is_some(), ..Self::default() }
    }

    /// This program, not just any: see [`ServerBinary::valkey`].
    pub fn binary(mut self, binary: ServerBinary) -> Self {
        self.binary = Some(binary);
        self
    }

    /// With an append-only file, synced each second: data survive [`Server::kill9`].
    pub fn aof(self) -> Self {
        self.arguments(["--appendonly", "yes", "--appendfsync", "everysec"])
    }

    /// More of the server's own options: `.arguments(["--maxmemory-policy", "noeviction"])`.
    pub fn arguments<S: Into<String>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// In cluster mode, as the only node, which has all slots: scripts may use keys of one slot only.
    ///
    /// With `TESTBED_CLUSTER` in the environment every server is one. It takes two seconds more to
    /// start.
    pub fn cluster(mut self) -> Self {
        self.cluster = true;
        self
    }

    /// One more user, in the words of `ACL SETUSER`: `app on >secret ~lock:* &* +@all`.
    pub fn user(self, rights: &str) -> Self {
        self.arguments(["--user"]).arguments(rights.split_whitespace())
    }

    /// A server whose wall clock the test moves.
    pub fn clock(mut self, shim: &ClockShim) -> Self {
        self.shim = Some(shim.clone());
        self
    }

    /// Starts it, and returns when it answers. Panics with its log when it does not.
    pub fn start(self) -> Server {
        let binary = self.binary.unwrap_or_else(ServerBinary::any);
        let mut reason = String::new();
        // Another process may take the port between our look and the server's bind.
        for _ in 0..5 {
            let mut arguments = self.arguments.clone();
            if self.cluster {
                let bus = free_port().to_string();
                arguments
                    .extend(["--cluster-enabled", "yes", "--cluster-port", &bus].map(Into::into));
            }
            let server = Server {
                binary: binary.clone(),
                dir: TempDir::with_prefix("testbed-").expect("a temporary directory"),
                port: free_port(),
                arguments,
                cluster: self.cluster,
                shim: self.shim.clone(),
                running: Mutex::new(None),
                admin: Mutex::new(None),
            };
            match server.launch() {
                Ok(()) => return server,
                Err(error) => reason = format!("{error}\n{}", server.log()),
            }
        }
        panic!("{binary} does not start: {reason}");
    }
}
