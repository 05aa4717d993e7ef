//! The arguments of `acquire` and `release`.

use std::time::Duration;

use clap::{ArgGroup, Args};
use redis_lock_core::Token;

use super::{Getting, Hold, Key, Kind, LOCK};
use crate::duration;

/// Take a lock that outlives this command
///
/// Prints the token of the hold. The lock is not renewed: it ends after --ttl, or by
/// `redis-lock release KEY --token TOKEN`. A program can adopt the token with the library. With
/// --fence the fencing token follows, after a space. With --json it prints `key`, `token` and
/// `fence`.
#[derive(Debug, Args)]
pub(crate) struct Acquire {
    #[command(flatten)]
    pub(crate) getting: Getting,
    /// How long the lock lasts
    #[arg(long, value_parser = duration::parse, value_name = "TIME", help_heading = LOCK)]
    pub(crate) ttl: Duration,
    #[command(flatten)]
    pub(crate) hold: Hold,
    /// Ask for a fencing token: a number larger than that of every earlier holder
    #[arg(long, help_heading = LOCK)]
    pub(crate) fence: bool,
    #[command(flatten)]
    pub(crate) key: Key,
}

/// End a hold by its token, or all present holds
///
/// With --token it releases the hold of a token that `acquire` printed, and no other. Without it,
/// all present holders lose the lock. It shows them and asks first. Answers other than `y` and `yes`
/// leave the lock alone.
///
/// The holder gets the reason: at once if the server's messages reach it, else at its next renewal.
/// The first waiter gets the lock. A program that does not react to the loss keeps running without
/// the lock. The lock of another client is ended by deleting its key. A value that is not a lock is
/// left alone.
///
/// Exits with 1 when nothing was released. With --json it prints `key`, `released` and `reason`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which").required(true).args(["reason", "token"]))]
pub(crate) struct Release {
    #[command(flatten)]
    pub(crate) key: Key,
    /// Why the hold ends, for the holder and its logs
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Release the hold of this token
    #[arg(long, value_name = "TOKEN", conflicts_with = "yes")]
    pub(crate) token: Option<Token>,
    /// Don't ask for confirmation, as in scripts
    #[arg(long, short)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) kind: Kind,
}
