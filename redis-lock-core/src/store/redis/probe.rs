//! Finds out what a server can do, at each connect.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};

use super::dialect::{Dialect, PROBES, words};
use super::line::ask_all;
use super::{Terms, decode, scripts};
use crate::domain::label::harmless;
use crate::domain::names::beside_locks;
use crate::domain::status::{ReleaseBy, Scripting, ServerInfo};

/// How to delete a key only if it has a certain value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Delete {
    /// `DELIFEQ key value`: Valkey 9.
    DelIfEq,
    /// `DELEX key IFEQ value`: Redis 8.4.
    DelEx,
    /// A script, for servers without such a command.
    #[default]
    Script,
}

impl Delete {
    /// Whether the server has a command for that.
    pub(super) fn is_native(self) -> bool {
        matches!(self, Self::DelIfEq | Self::DelEx)
    }

    /// Deletes the key if it has this value.
    pub(super) fn cmd(self, key: &str, value: &str) -> Cmd {
        match self {
            Self::DelIfEq => words(["DELIFEQ", key, value]),
            Self::DelEx => words(["DELEX", key, "IFEQ", value]),
            Self::Script => words(["EVALSHA", &scripts::DELETE.hash, "1", key, value]),
        }
    }

    /// The same with the full text of the script, for a server that has forgotten it.
    pub(super) fn in_full(key: &str, value: &str) -> Cmd {
        words(["EVAL", &scripts::DELETE.code, "1", key, value])
    }
}

/// How several commands are executed as one step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum AtomicBy {
    #[default]
    Scripts,
    /// When scripts are denied, unknown or not wanted.
    Transactions(Dialect),
}

/// What was found out about a server when connecting.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    pub(super) delete: Delete,
    pub(super) atomic_by: AtomicBy,
    /// Name and version, if the server reports them.
    pub(super) version: String,
    /// Whether it runs in cluster mode, where scripts may use keys of one slot only.
    pub(super) cluster: bool,
    /// Its run id, which changes with each start.
    pub(super) run: Option<String>,
    /// How long the server has run, by its clock.
    pub(super) uptime: Option<Duration>,
    /// The number of connected replicas, if the server reports it.
    pub(super) replicas: u32,
    /// Warnings for operators.
    pub(super) warnings: Vec<String>,
}

impl Found {
    /// The description for users.
    pub(super) fn info(&self) -> ServerInfo {
        let scripts = self.atomic_by == AtomicBy::Scripts;
        let release = match self.delete {
            Delete::DelIfEq | Delete::DelEx => ReleaseBy::CompareAndDelete,
            Delete::Script if scripts => ReleaseBy::Script,
            Delete::Script => ReleaseBy::Transaction,
        };
        let alone = ServerInfo::alone(self.version.clone(), release);
        ServerInfo { scripts, warnings: self.warnings.clone(), ..alone }
    }
}

/// Asks the server what it can do, and loads the scripts.
///
/// Error replies, such as missing rights, only leave something unknown. Errors of the connection
/// fail the probe.
pub(super) async fn probe(
    connection: &mut MultiplexedConnection,
    terms: &Terms,
) -> Result<Found, RedisError> {
    let Terms { namespace, scripting, .. } = terms;
    let key = beside_locks(namespace, "", "probe");
    let (if_eq, ex) = (Delete::DelIfEq.cmd(&key, "-"), Delete::DelEx.cmd(&key, "-"));
    let mut cmds = vec![words(["INFO"]), if_eq, ex];
    if *scripting == Scripting::Auto {
        // Only a hash: no script has this one.
        let unknown = words(["EVALSHA", &"0".repeat(40), "0"]);
        cmds.extend([words(["EVAL", "return 1", "0"]), unknown]);
    }
    cmds.push(terms.name_connection());
    let answers = ask_all(connection, cmds).await?;
    let has = |index: usize| answers.get(index).is_some_and(is_known);
    let delete = match (has(1), has(2)) {
        (true, _) => Delete::DelIfEq,
        (false, true) => Delete::DelEx,
        (false, false) => Delete::Script,
    };
    let info = answers.first().and_then(decode::text).unwrap_or_default();
    if let Some(Value::ServerError(error)) = answers.first()
        && matches!(decode::code_of(error), "LOADING" | "NOAUTH" | "MASTERDOWN")
    {
        return Err(RedisError::from(error.clone()));
    }
    let cluster = field(&info, "cluster_enabled") == Some("1");
    let run = field(&info, "run_id").map(Into::into);
    let denied = *scripting == Scripting::Never
        || answers.iter().skip(3).take(2).any(decode::denies_scripts);
    let atomic_by = if denied {
        AtomicBy::Transactions(dialect(connection, &key).await?)
    } else {
        AtomicBy::Scripts
    };
    if !denied {
        load_scripts(connection).await?;
    }
    let uptime = field(&info, "uptime_in_seconds").and_then(|seconds| seconds.parse().ok());
    let uptime = uptime.map(Duration::from_secs);
    let replicas = field(&info, "connected_slaves").and_then(|count| count.parse().ok());
    let replicas = replicas.unwrap_or(u32::MAX);
    let (version, warnings) = (version(&info), warnings(&info));
    Ok(Found { delete, atomic_by, version, cluster, run, uptime, replicas, warnings })
}

/// Loads the scripts into the server. This waits until the server is known to serve this user: a server closes
/// the connection of a client that sends much before it has authenticated.
async fn load_scripts(connection: &mut MultiplexedConnection) -> Result<(), RedisError> {
    let load = scripts::all().map(|script| words(["SCRIPT", "LOAD", &script.code]));
    // What is missing is sent in full when it is needed.
    ask_all(connection, load).await.map(drop)
}

/// Asks which commands the server has for leases.
async fn dialect(connection: &mut MultiplexedConnection, key: &str) -> Result<Dialect, RedisError> {
    let word = |word: &&'static str| if *word == "~" { key.to_owned() } else { (*word).into() };
    let probe =
        |words: &[&'static str]| Cmd::new().arg(words.iter().map(word).collect::<Vec<_>>()).clone();
    Ok(Dialect::of(&ask_all(connection, PROBES.map(probe)).await?))
}

/// Whether the answer shows that the server knows the command: even a node that does not have the
/// key reports an unknown command.
fn is_known(answer: &Value) -> bool {
    let elsewhere = |code| matches!(code, "MOVED" | "ASK" | "CLUSTERDOWN");
    match answer {
        Value::Int(_) => true,
        Value::ServerError(error) => elsewhere(error.code()),
        _ => false,
    }
}

/// A field of the answer to `INFO`.
pub(super) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

fn version(info: &str) -> String {
    let named = |name: &str, key| {
        field(info, key).map(|version| format!("{name} {}", harmless(version, 40)))
    };
    named("Valkey", "valkey_version")
        .or_else(|| named("Redis", "redis_version"))
        .unwrap_or_else(|| "unknown version".into())
}

fn warnings(info: &str) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(policy) = field(info, "maxmemory_policy")
        && policy != "noeviction"
    {
        let policy = harmless(policy, 40);
        warnings.push(format!(
            "maxmemory-policy is {policy}: the server may evict locks that are held; set noeviction"
        ));
    }
    if field(info, "aof_enabled") == Some("0") {
        warnings.push(
            "appendonly is off: a crash loses the locks of the last minutes, and a second holder can \
             start; set appendonly yes"
                .into(),
        );
    }
    if field(info, "role") == Some("slave") {
        warnings.push("this server is a replica and refuses locks; name the primary".into());
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e3_a_policy_that_evicts_locks_is_warned_of() {
        let info =
            "# Memory\r\nmaxmemory_policy:volatile-lru\r\nrole:master\r\nredis_version:7.0.15\r\n";
        assert_eq!(warnings(info).len(), 1);
        assert_eq!(version(info), "Redis 7.0.15");
        assert!(warnings("maxmemory_policy:noeviction\r\n").is_empty());
        assert_eq!(version("redis_version:7.2.4\r\nvalkey_version:9.1.0\r\n"), "Valkey 9.1.0");
        assert_eq!(warnings("role:slave\r\n").len(), 1);
        let said = warnings("aof_enabled:0\r\n").join(" ");
        assert!(said.contains("appendonly yes"), "{said}");
        assert!(warnings("aof_enabled:1\r\n").is_empty());
    }
}
