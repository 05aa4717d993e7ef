//! How a server is set up for a row of the table.

use redis_locks::{Locks, Scripting};
use testbed::{Server, ServerBinary};

/// All but scripts.
const NO_SCRIPTS: &str = "app on >secret ~* +@all -eval -evalsha";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Setting {
    Scripts,
    /// The user has no right to scripts.
    Denied,
    /// The commands for scripts have other names.
    Renamed,
    Never,
    /// The server has reached `maxmemory`.
    Full,
    FullWithoutScripts,
    /// One replica has to confirm.
    Replicated,
}

impl Setting {
    pub(super) const ALL: [Self; 7] = [
        Self::Scripts,
        Self::Denied,
        Self::Renamed,
        Self::Never,
        Self::Full,
        Self::FullWithoutScripts,
        Self::Replicated,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Scripts => "scripts",
            Self::Denied => "denied by ACL",
            Self::Renamed => "EVAL renamed",
            Self::Never => "`Scripting::Never`",
            Self::Full => "held locks when full",
            Self::FullWithoutScripts => "the same, `Never`",
            Self::Replicated => "`replicas(1)`",
        }
    }

    pub(super) fn has_scripts(self) -> bool {
        matches!(self, Self::Scripts | Self::Full | Self::Replicated)
    }

    pub(super) fn is_full(self) -> bool {
        matches!(self, Self::Full | Self::FullWithoutScripts)
    }
}

/// A server that runs in a setting.
pub(super) struct Started {
    pub(super) server: Server,
    _replica: Option<Server>,
    setting: Setting,
}

impl Started {
    /// `None` where the version does not know the setting.
    pub(super) fn new(binary: &ServerBinary, setting: Setting) -> Option<Self> {
        let builder = Server::builder().binary(binary.clone());
        let has_users = binary.version() >= (6, 0, 0);
        let builder = match setting {
            Setting::Denied if !has_users => return None,
            Setting::Denied if binary.version() >= (6, 2, 0) => {
                builder.user(&format!("{NO_SCRIPTS} &*"))
            }
            Setting::Denied => builder.user(NO_SCRIPTS),
            Setting::Renamed => {
                builder.rename_command("EVAL", "its-eval").rename_command("EVALSHA", "its-evalsha")
            }
            _ => builder,
        };
        let server = builder.start();
        let replica = (setting == Setting::Replicated).then(|| {
            let to = server.port().to_string();
            let replica = Server::builder().binary(binary.clone());
            let replica = replica.arguments(["--replicaof", "127.0.0.1", &to]).start();
            testbed::eventually(testbed::PATIENCE, "the replica follows", || {
                replica.info("replication", "master_link_status").as_deref() == Some("up")
            });
            replica
        });
        Some(Self { server, _replica: replica, setting })
    }

    /// Another manager, as another process would have it.
    pub(super) fn locks(&self) -> Result<Locks, redis_locks::LockError> {
        let url = match self.setting {
            Setting::Denied => format!("redis://app:secret@127.0.0.1:{}", self.server.port()),
            _ => self.server.url(),
        };
        let builder = Locks::builder().url(url);
        match self.setting {
            Setting::Never | Setting::FullWithoutScripts => builder.scripting(Scripting::Never),
            Setting::Replicated => builder.replicas(1),
            _ => builder,
        }
        .open()
    }
}
