//! Which server, and how it is reached.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::time::Duration;

use redis_lock_core::{LockError, Locks, LocksBuilder};

use crate::args::{Common, Task};
use crate::exit::Failure;

/// The locks on the server. Connects at once: a request would wait 10 seconds for a server that is not
/// there.
pub(crate) async fn locks(common: &Common, task: &Task) -> Result<Locks, Failure> {
    let mut builder = builder(common)?;
    if let Some(label) = label(task) {
        builder = builder.label(label);
    }
    if let Task::Check(check) = task {
        builder = builder.ttl(check.ttl).replicas(check.replicas);
    }
    match outage(task) {
        // The request waits for the server, and as long as it may.
        Some(_) => Ok(builder.open()?),
        None => Ok(builder.connect().await?),
    }
}

fn outage(task: &Task) -> Option<Duration> {
    match task {
        Task::Run(run) => run.getting.outage,
        Task::Acquire(acquire) => acquire.getting.outage,
        _ => None,
    }
}

/// Not read by clap, which would name both in every usage line, as if they were missing.
fn set(given: Option<&String>, name: &str) -> Option<String> {
    given.cloned().or_else(|| std::env::var(name).ok())
}

/// The prefix of every key.
pub(crate) fn namespace(common: &Common) -> Option<String> {
    set(common.namespace.as_ref(), "REDIS_LOCKS_NAMESPACE")
}

fn builder(common: &Common) -> Result<LocksBuilder, Failure> {
    let url = set(common.url.as_ref(), "REDIS_URL").filter(|url| !url.is_empty());
    let mut builder = Locks::builder().url(url.ok_or(LockError::NotConfigured)?);
    if let Some(namespace) = namespace(common) {
        builder = builder.namespace(namespace);
    }
    if let Some(time) = common.rejoin {
        builder = builder.rejoin(time);
    }
    if let Some(file) = &common.sentinel_password_file {
        let text = String::from_utf8_lossy(&read(file)?).into_owned();
        let password = text.lines().next().unwrap_or_default().to_owned();
        builder = builder.sentinel_auth(common.sentinel_user.clone().unwrap_or_default(), password);
    }
    with_certificates(builder, common)
}

#[cfg(feature = "rustls")]
fn with_certificates(mut builder: LocksBuilder, common: &Common) -> Result<LocksBuilder, Failure> {
    if let Some(file) = &common.cacert {
        builder = builder.tls_authority(read(file)?);
    }
    if let (Some(certificate), Some(key)) = (&common.tls_cert, &common.tls_key) {
        builder = builder.tls_identity(read(certificate)?, read(key)?);
    }
    Ok(builder)
}

#[cfg(not(feature = "rustls"))]
fn with_certificates(builder: LocksBuilder, common: &Common) -> Result<LocksBuilder, Failure> {
    let files = [&common.cacert, &common.tls_cert, &common.tls_key];
    match files.iter().any(|file| file.is_some()) {
        true => Err(Failure::Usage("this redis-lock was built without TLS".into())),
        false => Ok(builder),
    }
}

fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(file).map_err(|error| Failure::File { name: file.display().to_string(), error })
}

/// The holder's name: the given one, or the command that runs under the lock.
fn label(task: &Task) -> Option<String> {
    let (given, command) = match task {
        Task::Run(run) => (run.hold.label.as_ref(), run.command.first()),
        Task::Acquire(acquire) => (acquire.hold.label.as_ref(), None),
        _ => return None,
    };
    let of_command = |command: &OsString| {
        let host = rustix::system::uname();
        let host = host.nodename().to_string_lossy();
        format!("{host}/{} {}", std::process::id(), command.display())
    };
    given.cloned().or_else(|| command.map(of_command))
}
