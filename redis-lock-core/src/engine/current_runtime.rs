//! Finds the tokio runtime that the current thread belongs to.

use std::cell::Cell;

use tokio::runtime;

/// How many calls rely on a cached answer.
const USES: u8 = 100;

thread_local! {
    /// The cached answer, and how many calls may still rely on it.
    static CURRENT: Cell<(Option<runtime::Id>, u8)> = const { Cell::new((None, 0)) };
}

/// The multi-threaded runtime that this thread belongs to, if any. Only on such a runtime can a
/// task read answers sooner than the engine's thread.
///
/// A thread rarely changes to another runtime, and asking for the current one changes a counter
/// that all threads of the runtime share. So the answer is cached. A wrong answer costs only a
/// little delay.
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
