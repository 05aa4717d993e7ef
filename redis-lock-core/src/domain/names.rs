//! The keys and channels of one lock on the server.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::slice;
use std::sync::{Arc, OnceLock};

use once_cell::race::OnceBox;

/// Names everything that belongs to one lock. All of it hashes to the slot of the main key.
///
/// `docs/PROTOCOL.md` shows each name; a change here is a change of the protocol.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    main: Arc<str>,
    /// The namespace with its colon, or nothing.
    prefix_len: usize,
    /// The other locks, where several are taken together.
    others: Option<Arc<Others>>,
}

/// The locks that are taken together with a first one.
#[derive(Debug)]
struct Others {
    names: Box<[Names]>,
    /// The name of all of them for users.
    joined: Box<str>,
    /// All of them by slot; computed on first use.
    groups: OnceLock<Box<[Names]>>,
}

impl Names {
    pub(crate) fn new(namespace: &str, main: impl Into<Arc<str>>) -> Self {
        let prefix_len = if namespace.is_empty() { 0 } else { namespace.len() + 1 };
        Self { main: main.into(), prefix_len, others: None }
    }

    /// The names of several locks that are taken together. `joined` is shown to users.
    pub(crate) fn together(first: Self, others: Vec<Self>, joined: &str) -> Self {
        let (names, groups) = (others.into(), OnceLock::new());
        let others = Others { names, joined: joined.into(), groups };
        Self { others: Some(Arc::new(others)), ..first }
    }

    /// The names of each of the locks.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(self.others.iter().flat_map(|others| &others.names))
    }

    /// The locks in groups that hash to one slot each, in the order of their slots: what a server in
    /// cluster mode can do in one step. The order is the same in every process.
    pub(crate) fn groups(&self) -> &[Self] {
        let Some(others) = &self.others else { return slice::from_ref(self) };
        others.groups.get_or_init(|| {
            let mut slots: BTreeMap<u16, Vec<Self>> = BTreeMap::new();
            for names in self.all() {
                let one = Self { others: None, ..names.clone() };
                slots.entry(slot(&names.main)).or_default().push(one);
            }
            let group = |mut locks: Vec<Self>| {
                let rest = locks.split_off(1);
                locks.pop().map(|first| Self::together(first, rest, &others.joined))
            };
            slots.into_values().filter_map(group).collect()
        })
    }

    /// Whether one of the locks is this one.
    pub(crate) fn cover(&self, user_key: &str) -> bool {
        self.all().any(|names| names.own_key() == user_key)
    }

    /// The key of the lock itself, which other clients know.
    pub(crate) fn main(&self) -> &str {
        &self.main
    }

    /// The same, as a shared string.
    pub(crate) fn shared_main(&self) -> Arc<str> {
        Arc::clone(&self.main)
    }

    /// The key as the user named it; of several, all of them.
    pub(crate) fn user_key(&self) -> &str {
        self.others.as_ref().map_or_else(|| self.own_key(), |others| &others.joined)
    }

    pub(crate) fn own_key(&self) -> &str {
        self.main.get(self.prefix_len..).unwrap_or_default()
    }

    /// The queue: a sorted set of tokens in the order of arrival.
    pub(crate) fn queue(&self) -> String {
        self.side("q")
    }

    /// The waiters' details: a hash from token to lease and channel.
    pub(crate) fn waiters(&self) -> String {
        self.side("w")
    }

    /// The last fencing number.
    pub(crate) fn fence(&self) -> String {
        self.side("f")
    }

    /// The limit that the holders of permits agreed on.
    pub(crate) fn limit(&self) -> String {
        self.side("n")
    }

    /// What the last body that had the lock returned, for other calls.
    pub(crate) fn value(&self) -> String {
        self.side("v")
    }

    /// The tokens of the calls that came last and end older ones: a sorted set in the order of arrival.
    pub(crate) fn latest(&self) -> String {
        self.side("l")
    }

    /// The value of the last body that shared it, and the tokens that are entitled to it.
    pub(crate) fn shared(&self) -> String {
        self.side("s")
    }

    /// The tombstone of a token whose acquisition may still be on its way.
    pub(crate) fn tombstone(&self, token: &str) -> String {
        [&self.side("x"), ":", token].concat()
    }

    /// The channel on which a manager learns what happens to its tokens.
    pub(crate) fn channel(&self, manager: &str) -> String {
        [self.main.get(..self.prefix_len).unwrap_or_default(), "~m:", manager].concat()
    }

    /// Whether `key` is a side key of some lock of the same namespace and not a lock itself.
    pub(crate) fn has_side(&self, key: &str) -> bool {
        let own = self.main.get(..self.prefix_len).and_then(|prefix| key.strip_prefix(prefix));
        own.is_some_and(is_reserved)
    }

    fn side(&self, what: &str) -> String {
        let prefix = self.main.get(..self.prefix_len).unwrap_or_default();
        match slot_tag(&self.main) {
            None => [prefix, "{", &self.main, "}:~", what].concat(),
            Some(tag) => [prefix, "{", &tag, "}:", &self.main, ":~", what].concat(),
        }
    }
}

/// A key that belongs to no lock, with a tag that chooses its slot. It has the form of a tombstone, which
/// no lock can have.
pub(crate) fn beside_locks(namespace: &str, tag: &str, what: &str) -> String {
    let colon = if namespace.is_empty() { "" } else { ":" };
    let tag = if tag.is_empty() { "~" } else { tag };
    format!("{namespace}{colon}{{{tag}}}:~x:{what}")
}

/// Whether a key, without its namespace, has the form of a side key: it begins with a tag and ends
/// with the name of a side key.
pub(crate) fn is_reserved(key: &str) -> bool {
    let ends =
        || [":~q", ":~w", ":~f", ":~n", ":~v", ":~l", ":~s"].iter().any(|end| key.ends_with(end));
    key.starts_with('{') && key.contains("}:") && (ends() || key.contains(":~x:"))
}

/// The tag by which the side keys of a key hash to its slot. A key with braces that are no tag gets a number
/// that hashes to the same slot. `None` for a key without braces, which serves as the tag itself.
fn slot_tag(key: &str) -> Option<Cow<'_, str>> {
    match given_tag(key) {
        Some(tag) => Some(tag.into()),
        None => key.contains('}').then(|| tag_of(crc16(key.as_bytes()) % SLOTS).into()),
    }
}

/// The smallest number that hashes to a slot.
pub(crate) fn tag_of(slot: u16) -> String {
    // To look for it each time takes up to 40 ms, during which nothing else is sent to the server.
    static TAGS: OnceBox<BTreeMap<u16, u32>> = OnceBox::new();
    let tags = TAGS.get_or_init(|| {
        let mut tags = BTreeMap::new();
        let mut numbers = 0_u32..;
        while tags.len() < usize::from(SLOTS)
            && let Some(number) = numbers.next()
        {
            tags.entry(crc16(number.to_string().as_bytes()) % SLOTS).or_insert(number);
        }
        Box::new(tags)
    });
    tags.get(&(slot % SLOTS)).map_or_else(String::new, u32::to_string)
}

/// The part of the key that the server hashes: between the first `{` and the next `}`, when not empty.
fn given_tag(key: &str) -> Option<&str> {
    let (_, rest) = key.split_once('{')?;
    let (tag, _) = rest.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

/// How many slots a cluster has.
pub(crate) const SLOTS: u16 = 16_384;

/// The slot of a key.
pub(crate) fn slot(key: &str) -> u16 {
    crc16(given_tag(key).unwrap_or(key).as_bytes()) % SLOTS
}

/// CRC-16/XMODEM, which Redis Cluster assigns slots by.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc_is_the_one_of_the_cluster_specification() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
    }

    #[test]
    fn l7_keys_are_grouped_by_slot_in_one_order() {
        let of = |keys: &[&str]| {
            let mut each = keys.iter().map(|key| Names::new("", (*key).to_owned()));
            let first = each.next().unwrap();
            Names::together(first, each.collect(), "all of them")
        };
        let shown = |names: &Names| -> Vec<Vec<String>> {
            let keys = |group: &Names| group.all().map(|names| names.main().into()).collect();
            names.groups().iter().map(keys).collect()
        };
        // Of the cluster specification: foo is in slot 12182, bar in 5061.
        assert_eq!((slot("foo"), slot("bar")), (12182, 5061));
        let names = of(&["foo", "x{bar}", "bar", "y{foo}"]);
        assert_eq!(shown(&names), [vec!["x{bar}", "bar"], vec!["foo", "y{foo}"]]);
        let reversed = of(&["y{foo}", "bar", "foo", "x{bar}"]);
        assert_eq!(shown(&reversed)[0][0], "bar", "the order within a group is that of the keys");
        assert_eq!(names.groups()[1].user_key(), "all of them");
        assert_eq!(names.groups()[0].tombstone("t"), "{bar}:x{bar}:~x:t");
        assert_eq!(of(&["a{t}", "b{t}"]).groups().len(), 1);
    }

    #[test]
    fn g1_side_keys_share_the_slot_of_the_lock() {
        for key in
            ["a", "order:42", "a{b}c", "{b}", "{}", "}{", "{{a}}", "a}b", "x{}y{z}", "ü{", "{"]
        {
            share_their_slot(key);
        }
    }

    #[test]
    fn a_tag_is_the_smallest_number_of_its_slot() {
        for tag in [0_u32, 1, 2, 109_757] {
            let wanted = slot(&tag.to_string());
            assert_eq!((0..=tag).find(|it| slot(&it.to_string()) == wanted), Some(tag));
            assert_eq!(tag_of(wanted), tag.to_string());
        }
        assert!((0..SLOTS).all(|each| slot(&tag_of(each)) == each));
    }

    #[test]
    fn the_names_of_keys_with_odd_braces_are_found_as_fast_as_others() {
        let begin = std::time::Instant::now();
        for number in 0..2_000 {
            let names = Names::new("lock", format!("lock:a}}{number}"));
            assert_eq!(slot(&names.tombstone("t")), slot(names.main()));
        }
        assert!(begin.elapsed().as_secs() < 5, "{:?}", begin.elapsed());
    }

    #[test]
    fn what_is_written_beside_locks_is_the_name_of_none() {
        for namespace in ["lock", ""] {
            for tag in ["", "1234"] {
                let key = beside_locks(namespace, tag, "probe");
                let names = Names::new(namespace, "lock:a");
                assert!(names.has_side(&key), "{key} is listed as a lock");
                let own = &key[names.prefix_len..];
                assert!(crate::LockKey::from(own).check().is_err(), "{own} is taken as a lock");
                assert!(tag.is_empty() || slot(&key) == slot(tag), "{key}");
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn g1_side_keys_of_any_name_share_its_slot(key in "[{}a:~\\u{0}-\\u{7f}ü]{1,12}") {
            share_their_slot(&key);
        }
    }

    #[track_caller]
    fn share_their_slot(key: &str) {
        for namespace in ["lock", ""] {
            let main = crate::LockKey::from(key).in_namespace(namespace);
            let names = Names::new(namespace, main.clone());
            for side in [
                names.queue(),
                names.waiters(),
                names.fence(),
                names.limit(),
                names.latest(),
                names.tombstone("t"),
            ] {
                assert_eq!(slot(&side), slot(&main), "{side} of {main}");
                assert!(side.starts_with(namespace), "{side}");
                assert!(names.has_side(&side), "{side}");
                let own = &side[names.prefix_len..];
                assert!(crate::LockKey::from(own).check().is_err(), "{side} names no lock");
            }
            assert!(!names.has_side(&main) || is_reserved(key), "{main}");
        }
    }
}
