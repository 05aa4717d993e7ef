//! `fork(2)`, for tests of what a copy of a process does. No published package depends on it: they
//! all forbid unsafe code, and the standard library has no way to fork without `exec`.

unsafe extern "C" {
    fn fork() -> i32;
}

/// Copies this process; the copy has this thread alone. Returns the copy's process id, and in the
/// copy none.
///
/// # Panics
/// When the system has no room for another process.
pub fn forked() -> Option<u32> {
    // SAFETY: `fork` takes nothing and returns twice. What other threads had locked stays locked in
    // the copy, which can make it hang, and for a test that is a finding; its allocator is made
    // ready by the C library.
    let pid = unsafe { fork() };
    assert!(pid >= 0, "this process can be copied");
    u32::try_from(pid).ok().filter(|pid| *pid > 0)
}
