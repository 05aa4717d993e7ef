//! The terminal, which one process group at a time may read: that in its foreground.

use std::io::{stderr, stdin, stdout};
use std::os::fd::{AsFd, OwnedFd};

use nix::sys::signal::{SigSet, Signal};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Pid, getpgid, getpgrp, getppid, getsid};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

pub(crate) struct Terminal(OwnedFd);

impl Terminal {
    /// The terminal that controls this process, if any.
    pub(crate) fn find() -> Option<Self> {
        let named =
            open("/dev/tty", OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty());
        let duplicate = |fd: &dyn AsFd| fcntl_dupfd_cloexec(fd.as_fd(), 3);
        let (stdin, stdout, stderr) = (stdin(), stdout(), stderr());
        let inherited = [&stdin as &dyn AsFd, &stdout, &stderr].map(duplicate);
        let mut found = std::iter::once(named).chain(inherited).filter_map(Result::ok);
        found.find(|terminal| tcgetpgrp(terminal).is_ok()).map(Self)
    }

    /// Whether no shell could continue this process after a stop by the terminal.
    pub(crate) fn has_no_shell() -> bool {
        getsid(None).is_ok_and(|session| session == getpgrp())
    }

    /// Whether this process is in its foreground.
    pub(crate) fn is_ours(&self) -> bool {
        self.foreground() == Some(getpgrp())
    }

    /// Puts another group into the foreground in which this process is.
    pub(crate) fn give(&self, group: Pid) -> bool {
        self.is_ours() && self.set(group)
    }

    /// Takes the foreground back from that group.
    pub(crate) fn take(&self, group: Pid) -> bool {
        self.foreground() == Some(group) && self.set(getpgrp())
    }

    /// Puts the group of this process into the foreground in which its parent is.
    pub(crate) fn enter(&self) {
        let parent = getppid().and_then(|parent| getpgid(Some(parent)).ok());
        if parent.is_some() && parent == self.foreground() {
            self.set(getpgrp());
        }
    }

    fn foreground(&self) -> Option<Pid> {
        tcgetpgrp(&self.0).ok()
    }

    /// Needs `keep_from_stopping` where this process is in the background.
    fn set(&self, group: Pid) -> bool {
        tcsetpgrp(&self.0, group).is_ok()
    }
}

/// From now on a process in the background may set the foreground, and write where `stty tostop` forbids
/// it. A child inherits that.
pub(crate) fn keep_from_stopping() {
    // Without it this process is stopped, and goes on when it is continued.
    let _ = SigSet::from(Signal::SIGTTOU).thread_block();
}

/// Undoes `keep_from_stopping`.
pub(crate) fn stop_as_usual() {
    let _ = SigSet::from(Signal::SIGTTOU).thread_unblock();
}
