//! The runtime that the present thread belongs to.

use std::cell::Cell;

use tokio::runtime;

/// How often a thread relies on what it knows of its runtime.
const USES: u8 = 100;

thread_local! {
    /// The runtime that this thread was found to belong to, and how often to rely on that still.
    static CURRENT: Cell<(Option<runtime::Id>, u8)> = const { Cell::new((None, 0)) };
}

/// The multi-threaded runtime that this thread belongs to. Only on such a runtime does a task learn
/// of an answer sooner than the engine's thread.
///
/// A thread hardly ever goes over to another runtime, and asking for the present one changes a
/// counter that all its threads share. So it is asked for now and then only; who is wrong about it
/// is answered a little later.
pub(super) fn current_runtime() -> Option<runtime::Id> {
    let (known, uses) = CURRENT.try_with(Cell::get).unwrap_or_default();
    if uses > 0 {
        let _ = CURRENT.try_with(|here| here.set((known, uses - 1)));
        return known;
    }
    let found = find_runtime();
    let _ = CURRENT.try_with(|here| here.set((found, USES)));
    found
}

fn find_runtime() -> Option<runtime::Id> {
    let handle = runtime::Handle::try_current().ok()?;
    (handle.runtime_flavor() == runtime::RuntimeFlavor::MultiThread).then(|| handle.id())
}
