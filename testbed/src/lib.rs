//! Scenery for tests: real servers that can be frozen, killed and restarted, a network that can
//! fail, a server clock that can jump, and the small tools that make such tests readable.
//!
//! Nothing here depends on an async runtime: tests block and drop runtimes on purpose, and this
//! package has to work meanwhile. Where a library would return an error, it panics with a clear
//! sentence.
//!
//! | want | use |
//! |---|---|
//! | a server of one's own | [`Server`] |
//! | several that share the slots | [`Cluster`] |
//! | a primary that sentinels replace | [`Sentinel`] |
//! | Postgres or MariaDB | [`Database`] |
//! | certificates for TLS | [`Certificates`] |
//! | a network that delays, swallows, cuts | [`Proxy`] |
//! | a server that packets don't reach any more | [`Island`] |
//! | a server whose clock jumps, or stands | [`ClockShim`] |
//! | another process | [`Child`] |
//! | any program, ended with all that it started | [`Program`] |
//! | drop a future at every await | [`cancel_at`] |
//! | a process of its own for a test | [`in_own_process`] |
//! | wait for something, not for long | [`eventually`] |
//! | a bound that a busy machine does not keep | [`Turns`] |
//! | know whether, and by which thread, a task was woken | [`WakeLog`] |
//! | say that a test could not run here | [`skip!`](crate::skip!) |

#![expect(
    clippy::exhaustive_enums,
    clippy::exhaustive_structs,
    reason = "used by this repository alone"
)]

mod binary;
mod cancel;
mod child;
mod clock_shim;
mod cluster;
mod counter;
mod database;
mod deadline;
mod external;
mod find;
mod folder;
mod host;
mod install;
mod island;
mod monitor;
mod node;
mod obtain;
mod own_process;
mod port;
mod program;
mod proxy;
mod python;
mod sentinel;
mod server;
mod signal;
mod skip;
mod target;
mod tls;
mod turns;
mod wake_log;
mod watchdog;
mod wheel;

pub use binary::{Flavor, ServerBinary};
pub use cancel::{cancel_at, cancel_in_flight};
pub use child::{Child, ChildIo, Role, dispatch};
pub use clock_shim::ClockShim;
pub use cluster::{Cluster, ClusterBuilder, FailOver, SlotMove};
pub use counter::SharedCounter;
pub use database::Database;
pub use deadline::{LONG, PATIENCE, eventually, holds_for, must_be_prompt};
pub use install::{Permission, find_or_install};
pub use island::Island;
pub use monitor::Monitor;
pub use node::Node;
pub use own_process::in_own_process;
pub use port::free_port;
pub use program::Program;
pub use proxy::{Connection, Proxy, Selection};
pub use python::{python_with_redis, python_with_redlock};
pub use sentinel::{Sentinel, SentinelBuilder};
pub use server::{Server, ServerBuilder};
pub use signal::{continue_process, is_stopped, kill_process, signal, stop_process};
pub use skip::report_skipped;
pub use target::target_dir;
pub use tls::Certificates;
pub use turns::Turns;
pub use wake_log::WakeLog;
