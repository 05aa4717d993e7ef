//! The table of the attribute's options: the name of each, an example, other words that users write
//! for it, and its parser.

use proc_macro2::Ident;
use syn::Result;
use syn::parse::ParseStream;

use super::Options;
use super::readers::{
    absolute_path, assign, assigned, binding, choice, expression, flag, handler, key, keys,
    manager, permits, places, set, switch, waiters,
};
use super::value::{Kind, Lease, OnLost, Release, Time, Waiting};

/// An option.
pub(super) struct Entry {
    pub(super) name: &'static str,
    /// An example of its use.
    pub(super) example: &'static str,
    /// Other words that users write for it, small and without `_`, and the advice for them.
    pub(super) meant_by: &'static [(&'static str, &'static str)],
    pub(super) read: fn(&mut Options, Ident, &Self, ParseStream<'_>) -> Result<()>,
}

impl Entry {
    /// What to write instead of this word, if it is another one for this option.
    pub(super) fn advice(&self, word: &str) -> Option<&'static str> {
        let word = word.to_lowercase().replace('_', "");
        let meant = self.meant_by.iter().find(|(words, _)| words.split(' ').any(|it| it == word));
        meant.map(|(_, advice)| *advice)
    }
}

/// The options by what they are for, as the message on an unknown one lists them.
pub(super) const GROUPS: [(&str, &[&str]); 6] = [
    ("what is locked", &["key", "keys", "read", "write", "permits"]),
    (
        "how long",
        &["ttl", "wait", "renew", "max_hold", "min_hold", "once", "linger", "outage", "margin"],
    ),
    ("what another call does", &["queue", "newest", "replay", "share", "same"]),
    ("when it fails", &["on_busy", "on_done", "on_superseded", "on_error", "on_lost", "release"]),
    ("in the body", &["fence", "guard", "slot"]),
    (
        "which locks",
        &["via", "reentrant", "fair", "max_waiters", "repair_orphan", "label", "request", "crate"],
    ),
];

/// Reads `name = value` to the field of this name.
macro_rules! value {
    ($place:ident, $read:expr) => {
        |options, name, entry, input| assign(&mut options.$place, name, input, entry.example, $read)
    };
}

/// The same for a time, with the message for zero.
macro_rules! time {
    ($place:ident, $zero:literal) => {
        value!($place, |it| Time::parse(it, $zero))
    };
}

/// All of them, in the order of the documentation.
pub(super) static OPTIONS: [Entry; 36] = [
    Entry {
        name: "key",
        example: "key = \"order:{order_id}\"",
        meant_by: &[("name id resource lock lockname lockkey", "`key` names what is locked")],
        read: |options, name, entry, input| {
            let value = key(&name, entry.example, input)?;
            options.set_key(name, value)
        },
    },
    Entry {
        name: "keys",
        example: "keys = [\"acct:{from}\", \"acct:{to}\"]",
        meant_by: &[("multi all multilock", "several keys are `keys = [\"a:{x}\", \"b:{y}\"]`")],
        read: |options, name, entry, input| {
            let value = keys(&name, entry.example, input)?;
            options.set_key(name, value)
        },
    },
    Entry {
        name: "read",
        example: "read",
        meant_by: &[
            ("shared", "a lock that readers share is `read`"),
            ("exclusive mutex", "exclusive is the default, leave it out"),
            (
                "mode kind type locktype rwlock readwrite",
                "exclusive is the default; other kinds are `read`, `write` or `permits = 4`",
            ),
        ],
        read: |options, name, _, input| {
            flag(&name, input)?;
            options.set_kind(name, Kind { call: "read", argument: None })
        },
    },
    Entry {
        name: "write",
        example: "write",
        meant_by: &[],
        read: |options, name, _, input| {
            flag(&name, input)?;
            options.set_kind(name, Kind { call: "write", argument: None })
        },
    },
    Entry {
        name: "permits",
        example: "permits = 4",
        meant_by: &[(
            "semaphore max limit concurrency maxconcurrency maxconcurrent slots count permit",
            "`permits = n` limits how many calls hold the lock at once",
        )],
        read: |options, name, entry, input| {
            let value = assigned(&name, input, entry.example, permits)?;
            options.set_kind(name, Kind { call: "permits", argument: Some(value) })
        },
    },
    Entry {
        name: "ttl",
        example: "ttl = \"30s\"",
        meant_by: &[
            (
                "timeout locktimeout",
                "`ttl` is how long the lease outlives a dead holder, and `wait` how long a call \
                 may wait",
            ),
            (
                "lease leasetime leaseduration expire expires expiry expiretime expiration \
                 expiresin ex px duration lockduration",
                "`ttl` is the length of the lease",
            ),
            (
                "lockatmostfor atmost atmostfor",
                "`ttl` is how long the lock outlives a dead holder, and `max_hold` how long a living one may keep it",
            ),
        ],
        read: value!(ttl, Lease::parse),
    },
    Entry {
        name: "wait",
        example: "wait = \"5s\"",
        meant_by: &[(
            "blocking nowait trylock retry retries retrycount retrydelay retryinterval \
             attempts blockingtimeout waittime waittimeout waitfor maxwait acquiretimeout \
             acquirewait patience",
            "`wait` limits how long a call waits: `\"5s\"`, `\"forever\"` or `\"none\"`",
        )],
        read: value!(wait, Waiting::parse),
    },
    Entry {
        name: "renew",
        example: "renew = false",
        meant_by: &[(
            "watchdog autorenew autorenewal renewal keepalive heartbeat autoextend extend \
             refresh autorelease",
            "the lease is renewed while the body runs; `renew = false` switches that off",
        )],
        read: |options, name, entry, input| switch(&mut options.renew, name, input, entry.example),
    },
    Entry {
        name: "max_hold",
        example: "max_hold = \"10m\"",
        meant_by: &[(
            "holdlimit maxduration runtimelimit",
            "`max_hold` limits how long a living holder keeps the lock",
        )],
        read: time!(
            max_hold,
            "a max_hold of zero would never hold a lock; leave it out for the default"
        ),
    },
    Entry {
        name: "min_hold",
        example: "min_hold = \"1m\"",
        meant_by: &[(
            "lockatleastfor atleast atleastfor cooldown",
            "`min_hold` keeps the lock at least that long",
        )],
        read: time!(min_hold, "a min_hold of zero is the default; leave it out"),
    },
    Entry {
        name: "once",
        example: "once = \"24h\"",
        meant_by: &[
            ("period every runonce onceper", "`once` sets how long a success is remembered"),
            (
                "unique exclusiveuntil",
                "`wait = \"none\", on_busy = …` skips a call while another one runs; `once = \
                 \"24h\"` skips it after a success",
            ),
        ],
        read: time!(once, "a success that is remembered for no time is the default; leave it out"),
    },
    Entry {
        name: "queue",
        example: "queue = 1",
        meant_by: &[
            (
                "coalesce coalescing collapse merge",
                "with `queue = 1, on_busy = …` one call waits, and the others are answered at once",
            ),
            (
                "debounce throttle delay quiet",
                "no option delays a call: with `queue = 1` one call waits for the others, with \
                 `newest` a newer call ends the older one",
            ),
            (
                "maxqueue maxqueued queuelimit queuesize queuelength backlog",
                "`queue = n` limits the waiting calls of all processes, and `max_waiters = n` \
                 those of this process",
            ),
        ],
        read: value!(queue, places),
    },
    Entry {
        name: "newest",
        example: "newest",
        meant_by: &[(
            "latest latestonly last lastwins replace restart supersede superseded preempt \
             cancelprevious cancelold cancelolder cancelinprogress cancelrunning switch switchmap",
            "with `newest` a newer call ends the older one",
        )],
        read: |options, name, _, input| {
            flag(&name, input)?;
            set(&mut options.newest, name, ())
        },
    },
    Entry {
        name: "replay",
        example: "replay",
        meant_by: &[
            (
                "memoize memo cache cached remember result",
                "`once = \"24h\", replay` gives later calls the value of the one that succeeded",
            ),
            (
                "idempotent idempotency idempotencykey",
                "`once = \"24h\", replay` gives a repeated request the first answer; `same = \
                 payload` refuses another payload under its key",
            ),
        ],
        read: |options, name, _, input| {
            flag(&name, input)?;
            set(&mut options.replay, name, ())
        },
    },
    Entry {
        name: "share",
        example: "share",
        meant_by: &[(
            "singleflight dedupe dedup deduplicate syncwrites stampede shareresult",
            "`share` gives waiting calls the value of the one that runs; `once = \"24h\", \
             replay` gives it to later calls",
        )],
        read: |options, name, _, input| {
            flag(&name, input)?;
            set(&mut options.share, name, ())
        },
    },
    Entry {
        name: "same",
        example: "same = payload",
        meant_by: &[(
            "payload fingerprint requesthash bodyhash",
            "`same = expr` refuses calls with the same key and other input",
        )],
        read: value!(same, expression),
    },
    Entry {
        name: "on_busy",
        example: "on_busy = Ok(None)",
        meant_by: &[(
            "skip fallback ontimeout iflocked skipiflocked onlocked oncontention orelse \
             otherwise default locktimeoutstrategy failstrategy",
            "`on_busy = value` is returned when the lock is busy; it needs a limit such as \
             `wait = \"none\"`",
        )],
        read: value!(on_busy, expression),
    },
    Entry {
        name: "on_done",
        example: "on_done = Ok(None)",
        meant_by: &[(
            "ifdone alreadydone",
            "`on_done = value` is returned when the work was done already; it needs `once`",
        )],
        read: value!(on_done, expression),
    },
    Entry {
        name: "on_superseded",
        example: "on_superseded = Ok(None)",
        meant_by: &[(
            "onreplaced oncancelled onnewer ifsuperseded",
            "`on_superseded = value` is returned when a newer call came; it needs `newest`",
        )],
        read: value!(on_superseded, expression),
    },
    Entry {
        name: "on_error",
        example: "on_error = |err| fallback(err)",
        meant_by: &[(
            "onfail onfailure error handler",
            "`on_error = |err| value` is returned when the lock fails",
        )],
        read: value!(on_error, handler),
    },
    Entry {
        name: "on_lost",
        example: "on_lost = finish",
        meant_by: &[],
        read: value!(on_lost, |it| choice(
            it,
            &[("cancel", OnLost::Cancel), ("finish", OnLost::Finish)]
        )),
    },
    Entry {
        name: "release",
        example: "release = background",
        meant_by: &[],
        read: value!(release, |it| choice(
            it,
            &[("wait", Release::Wait), ("background", Release::Background)]
        )),
    },
    Entry {
        name: "fence",
        example: "fence = token",
        meant_by: &[(
            "token fenced fencing fencingtoken fencetoken",
            "`fence = token` binds the fencing number to a variable of the body, here `token`",
        )],
        read: value!(fence, binding),
    },
    Entry { name: "guard", example: "guard = lock", meant_by: &[], read: value!(guard, binding) },
    Entry {
        name: "slot",
        example: "slot = device",
        meant_by: &[(
            "slotted slotnumber permitnumber permitindex index device",
            "`slot = device` binds the number of the permit to a variable of the body, here `device`",
        )],
        read: value!(slot, binding),
    },
    Entry {
        name: "via",
        example: "via = self.locks",
        meant_by: &[
            ("client redis pool conn connection locks manager", "`via = expr` chooses the `Locks`"),
            ("namespace", "the namespace belongs to the manager: `Locks::builder().namespace(..)`"),
            (
                "prefix cachenames",
                "a prefix is for a block: `#[redis_lock_defaults(prefix = \"orders:\")]` on the `impl`",
            ),
        ],
        read: value!(via, manager),
    },
    Entry {
        name: "reentrant",
        example: "reentrant",
        meant_by: &[],
        read: |options, name, _, input| {
            flag(&name, input)?;
            set(&mut options.reentrant, name, ())
        },
    },
    Entry {
        name: "fair",
        example: "fair = false",
        meant_by: &[],
        read: |options, name, entry, input| switch(&mut options.fair, name, input, entry.example),
    },
    Entry {
        name: "max_waiters",
        example: "max_waiters = 100",
        meant_by: &[(
            "waiters maxwaiting",
            "how many calls may wait is `max_waiters` in this process, and `queue` over all of them",
        )],
        read: value!(max_waiters, waiters),
    },
    Entry {
        name: "repair_orphan",
        example: "repair_orphan = \"30s\"",
        meant_by: &[],
        read: time!(
            repair_orphan,
            "a repair_orphan of zero would delete what others hold; give them time to finish"
        ),
    },
    Entry {
        name: "linger",
        example: "linger = \"2s\"",
        meant_by: &[("keep idle", "how long an unused lock is kept is `linger`")],
        read: time!(linger, "a linger of zero keeps nothing; leave it out"),
    },
    Entry {
        name: "label",
        example: "label = \"nightly run\"",
        meant_by: &[(
            "holder owner description holdername",
            "what the holder is called for people is `label`",
        )],
        read: value!(label, expression),
    },
    Entry {
        name: "outage",
        example: "outage = \"5s\"",
        meant_by: &[],
        read: time!(
            outage,
            "an outage of zero would fail at the first trouble; leave it out for the default"
        ),
    },
    Entry {
        name: "margin",
        example: "margin = \"10s\"",
        meant_by: &[("lockdelay grace graceperiod", "time after the lease is `margin`")],
        read: time!(margin, "a margin of zero is the default; leave it out"),
    },
    Entry {
        name: "request",
        example: "request = charge_lock",
        meant_by: &[(
            "companion lockfn requestfn",
            "a function that makes the same request is `request = name`",
        )],
        read: |options, name, entry, input| {
            assign(&mut options.request, name, input, entry.example, |input| {
                let message = "expected a name for the function that makes the request";
                input.parse().map_err(|error: syn::Error| syn::Error::new(error.span(), message))
            })
        },
    },
    Entry {
        name: "crate",
        example: "crate = ::locks",
        meant_by: &[],
        read: value!(krate, absolute_path),
    },
];

/// The option of that name.
pub(super) fn find(name: &Ident) -> Option<&'static Entry> {
    OPTIONS.iter().find(|entry| name == entry.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_is_in_the_table_of_the_page_with_its_default() {
        let page = include_str!("../../../src/attribute.md");
        for Entry { name, .. } in &OPTIONS {
            let row = page.lines().find_map(|line| line.strip_prefix(&format!("| `{name}` | ")));
            let row = row.unwrap_or_else(|| panic!("{name} is in no row of attribute.md"));
            let cells: Vec<&str> = row.split(" | ").collect();
            assert!(cells.len() == 3 && cells[..2].iter().all(|it| !it.is_empty()), "{row}");
        }
    }

    #[test]
    fn every_option_is_in_one_group() {
        let grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        let mut names: Vec<&str> = OPTIONS.iter().map(|entry| entry.name).collect();
        assert_eq!(grouped.len(), names.len());
        names.retain(|name| !grouped.contains(name));
        assert!(names.is_empty(), "{names:?} are in no group");
    }

    #[test]
    fn no_word_is_given_two_advices() {
        let mut seen = std::collections::HashSet::new();
        let words = OPTIONS.iter().flat_map(|entry| entry.meant_by);
        for word in words.flat_map(|(words, _)| words.split(' ')) {
            assert!(seen.insert(word), "{word}");
            assert_eq!(word, word.to_lowercase().replace('_', ""), "{word}");
            assert!(OPTIONS.iter().all(|entry| entry.name != word), "{word} is an option");
        }
    }

    #[test]
    fn every_example_is_read_as_its_option() {
        for Entry { name, example, .. } in &OPTIONS {
            let mut mistakes = crate::diagnostics::Mistakes::default();
            let options = crate::options::parse(example.parse().expect(name), &mut mistakes);
            assert!(mistakes.is_empty(), "{example}");
            assert_eq!(options.given.first().map(ToString::to_string), Some((*name).to_owned()));
        }
    }
}
