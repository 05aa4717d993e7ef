//! The scripts, each a whole of its own on the wire.

use std::sync::LazyLock;

use redis::Script;

/// One script and its name among the server's.
pub(super) struct Lua {
    pub(super) code: String,
    pub(super) hash: String,
}

impl Lua {
    fn of(parts: &[&str]) -> Self {
        let code = parts.concat();
        let hash = Script::new(&code).get_hash().to_owned();
        Self { code, hash }
    }
}

const QUEUE: &str = include_str!("lua/queue.lua");
const FENCE: &str = include_str!("lua/fence.lua");

pub(super) static ACQUIRE: LazyLock<Lua> =
    LazyLock::new(|| Lua::of(&[QUEUE, FENCE, include_str!("lua/acquire.lua")]));
pub(super) static RELEASE: LazyLock<Lua> =
    LazyLock::new(|| Lua::of(&[QUEUE, include_str!("lua/release.lua")]));
pub(super) static RENEW: LazyLock<Lua> =
    LazyLock::new(|| Lua::of(&[include_str!("lua/renew.lua")]));
pub(super) static YIELD: LazyLock<Lua> =
    LazyLock::new(|| Lua::of(&[QUEUE, FENCE, include_str!("lua/yield.lua")]));

pub(super) static LOOK: LazyLock<Lua> =
    LazyLock::new(|| Lua::of(&[QUEUE, include_str!("lua/look.lua")]));
pub(super) static FORCE: LazyLock<Lua> =
    LazyLock::new(|| Lua::of(&[QUEUE, SHARED, include_str!("lua/force.lua")]));

const SHARED: &str = include_str!("lua/shared.lua");
const ALL: &str = include_str!("lua/all.lua");

pub(super) static SHARED_ACQUIRE: LazyLock<Lua> =
    LazyLock::new(|| Lua::of(&[QUEUE, FENCE, SHARED, include_str!("lua/shared_acquire.lua")]));
pub(super) static SHARED_RELEASE: LazyLock<Lua> =
    LazyLock::new(|| Lua::of(&[QUEUE, SHARED, include_str!("lua/shared_release.lua")]));
pub(super) static SHARED_RENEW: LazyLock<Lua> =
    LazyLock::new(|| Lua::of(&[QUEUE, SHARED, include_str!("lua/shared_renew.lua")]));
pub(super) static SHARED_DOWNGRADE: LazyLock<Lua> =
    LazyLock::new(|| Lua::of(&[QUEUE, SHARED, include_str!("lua/shared_downgrade.lua")]));
pub(super) static ALL_ACQUIRE: LazyLock<Lua> =
    LazyLock::new(|| Lua::of(&[QUEUE, ALL, include_str!("lua/all_acquire.lua")]));
pub(super) static ALL_RELEASE: LazyLock<Lua> =
    LazyLock::new(|| Lua::of(&[QUEUE, ALL, include_str!("lua/all_release.lua")]));
pub(super) static ALL_RENEW: LazyLock<Lua> =
    LazyLock::new(|| Lua::of(&[include_str!("lua/all_renew.lua")]));

pub(super) static ALL_RAISE: LazyLock<Lua> =
    LazyLock::new(|| Lua::of(&[include_str!("lua/all_raise.lua")]));

pub(super) static DELETE: LazyLock<Lua> =
    LazyLock::new(|| Lua::of(&[include_str!("lua/delete.lua")]));

/// Those of the commonest lock, to be loaded at connect. The others are sent when they are needed.
pub(super) fn all() -> [&'static Lua; 5] {
    [&ACQUIRE, &DELETE, &RELEASE, &RENEW, &YIELD]
}
