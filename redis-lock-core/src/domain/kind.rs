//! The kinds of lock, and everything that distinguishes them.

use crate::LockKind;

/// What sort of lock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Kind {
    Mutex,
    Read,
    Write,
    Permit {
        limit: u32,
    },
    /// Several mutexes as one lock: all or none.
    All {
        /// Whether mutexes that are free are kept while waiting for the next, after several rounds
        /// failed.
        ordered: bool,
    },
}

/// Kinds of one family share a key; kinds of two are refused there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Family {
    /// The key has a string: the holder's token.
    Mutex,
    /// The key has a set of holders, each with its mode before its token.
    ReadWrite,
    /// A set of holders as well, no more than the limit that they agree on.
    Permits,
}

impl Family {
    /// For messages.
    pub(crate) const fn description(self) -> &'static str {
        match self {
            Self::Mutex => "a mutex",
            Self::ReadWrite => "a lock for reading and writing",
            Self::Permits => "a lock of several permits",
        }
    }

    /// Why another kind of lock is refused at a key that is held as this one.
    pub(crate) fn in_use(self) -> String {
        let lock = self.description();
        format!("the key is in use as {lock}; use the same kind everywhere, or another key")
    }
}

/// The properties of a kind, whatever its limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traits {
    /// Its name in events and metrics.
    pub(crate) name: &'static str,
    pub(crate) family: Family,
    /// The letter before a holder's token, for kinds whose holders are in a set. Scripts know it by the
    /// kind's name, in capitals.
    pub(crate) mode: Option<&'static str>,
    /// Whether a holder shuts out all others.
    pub(crate) is_exclusive: bool,
    /// Whether the tasks of a process share one machine, so that a lease passes from one to the
    /// next without asking the server. Such a lock can also be taken with `SET NX`, linger, and be
    /// held without a lease.
    pub(crate) is_pooled: bool,
}

impl Kind {
    /// For messages.
    pub(crate) const fn description(self) -> &'static str {
        match self {
            Self::All { .. } => "a lock of several keys",
            kind => kind.family().description(),
        }
    }

    /// The table of kinds, from which all else is derived.
    pub(crate) const fn traits(self) -> Traits {
        let exclusive = Traits {
            name: "mutex",
            family: Family::Mutex,
            mode: None,
            is_exclusive: true,
            is_pooled: false,
        };
        match self {
            Self::Mutex => Traits { is_pooled: true, ..exclusive },
            Self::All { .. } => Traits { name: "all", ..exclusive },
            Self::Write => {
                Traits { name: "write", family: Family::ReadWrite, mode: Some("w"), ..exclusive }
            }
            Self::Read => Traits {
                name: "read",
                family: Family::ReadWrite,
                mode: Some("r"),
                is_exclusive: false,
                ..exclusive
            },
            Self::Permit { .. } => Traits {
                name: "permit",
                family: Family::Permits,
                mode: Some("p"),
                is_exclusive: false,
                ..exclusive
            },
        }
    }

    /// One of each kind, for what is created once for every kind.
    pub(crate) const EACH: [Self; 5] = [
        Self::Mutex,
        Self::Read,
        Self::Write,
        Self::Permit { limit: 1 },
        Self::All { ordered: false },
    ];

    pub(crate) const fn name(self) -> &'static str {
        self.traits().name
    }

    pub(crate) const fn family(self) -> Family {
        self.traits().family
    }

    /// Whether its keys have strings, rather than sets of holders.
    pub(crate) const fn is_value(self) -> bool {
        matches!(self.family(), Family::Mutex)
    }

    /// See [`Traits::is_pooled`].
    pub(crate) const fn is_pooled(self) -> bool {
        self.traits().is_pooled
    }

    /// How many can hold it at once, if that is limited.
    pub(crate) const fn limit(self) -> Option<u32> {
        match self {
            Self::Permit { limit } => Some(limit),
            _ => None,
        }
    }

    /// Whether a lock that looks like this can be held as this kind. A key that is free, or that
    /// another program uses, does not tell.
    pub(crate) fn may_be(self, seen: LockKind) -> bool {
        match (seen, self) {
            (LockKind::Free | LockKind::Foreign, _)
            | (LockKind::Permit { .. }, Self::Permit { .. }) => true,
            _ => seen == LockKind::from(self),
        }
    }

    /// The kind whose holders are marked with this letter.
    pub(crate) fn of_mode(mode: &str, limit: u32) -> Option<Self> {
        let kind = Self::EACH.into_iter().find(|kind| kind.traits().mode == Some(mode))?;
        Some(if kind.limit().is_some() { Self::Permit { limit } } else { kind })
    }

    /// Whether holders of both kinds fit together; up to the limit, if there is one.
    pub(crate) fn fits_beside(self, other: Self) -> bool {
        !self.traits().is_exclusive && self.name() == other.name()
    }

    /// Whether a holder of this kind has all that `inner` asks for, so that calls can be nested.
    pub(crate) fn covers(self, inner: Self) -> bool {
        match (self, inner) {
            (Self::Write, Self::Read) => true,
            _ if self.is_value() => inner.is_value(),
            _ => self == inner,
        }
    }
}

impl From<Kind> for LockKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Mutex | Kind::All { .. } => Self::Mutex,
            Kind::Read => Self::Read,
            Kind::Write => Self::Write,
            Kind::Permit { limit } => Self::Permit { limit },
        }
    }
}

/// The name of a sort of lock, and of the annotated function that takes it. Empty without a name.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Title {
    /// The template of its keys, or the name that the request was given.
    pub(crate) lock: &'static str,
    pub(crate) function: &'static str,
}

/// The labels of a request's numbers.
pub(crate) type LockSort = (Kind, Title);

impl Title {
    /// The name as a field of an event, which is left out without a name.
    pub(crate) fn shown(&self) -> Option<&'static str> {
        Some(self.lock).filter(|lock| !lock.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_modes_tell_kinds_apart() {
        for kind in Kind::EACH {
            for other in Kind::EACH.into_iter().filter(|other| *other != kind) {
                assert_ne!(kind.name(), other.name());
                let (mode, others) = (kind.traits().mode, other.traits().mode);
                assert!(mode.is_none() || mode != others, "{kind:?} and {other:?}");
            }
            assert_eq!(kind.traits().mode.is_none(), kind.is_value());
        }
    }

    #[test]
    fn a_mode_names_its_kind() {
        assert_eq!(Kind::of_mode("r", 3), Some(Kind::Read));
        assert_eq!(Kind::of_mode("p", 3), Some(Kind::Permit { limit: 3 }));
        assert_eq!(Kind::of_mode("x", 3), None);
    }

    #[test]
    fn a_lock_is_seen_as_what_it_is_held_as() {
        let (two, three) = (Kind::Permit { limit: 2 }, Kind::Permit { limit: 3 });
        assert!(two.may_be(three.into()), "the limit may differ");
        assert!(Kind::All { ordered: true }.may_be(Kind::Mutex.into()));
        assert!(!Kind::Write.may_be(Kind::Read.into()) && !Kind::Read.may_be(Kind::Write.into()));
        for kind in Kind::EACH {
            assert!(kind.may_be(LockKind::Free) && kind.may_be(kind.into()), "{kind:?}");
        }
    }

    #[test]
    fn holders_of_one_kind_fit_together_unless_it_is_exclusive() {
        let (two, three) = (Kind::Permit { limit: 2 }, Kind::Permit { limit: 3 });
        assert!(Kind::Read.fits_beside(Kind::Read) && two.fits_beside(three));
        assert!(!Kind::Read.fits_beside(Kind::Write) && !Kind::Write.fits_beside(Kind::Read));
        assert!(!Kind::Mutex.fits_beside(Kind::Mutex) && !Kind::Write.fits_beside(Kind::Write));
    }

    #[test]
    fn a_writer_covers_readers_and_a_reader_no_writer() {
        assert!(Kind::Write.covers(Kind::Read));
        assert!(!Kind::Read.covers(Kind::Write));
        assert!(Kind::Mutex.covers(Kind::All { ordered: true }));
        assert!(!Kind::Mutex.covers(Kind::Write));
        assert!(!Kind::Permit { limit: 1 }.covers(Kind::Permit { limit: 2 }));
    }
}
