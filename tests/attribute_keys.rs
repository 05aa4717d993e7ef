//! Keys tell calls apart exactly as their values do.

use std::collections::HashMap;

use proptest::collection::vec;
use proptest::prelude::*;
use redis_locks::__private_0_1::{render, segment};
use redis_locks::{LockError, Locks, redis_lock};

/// Strings that contain what the template around them consists of.
fn tricky() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just(":".to_owned()),
        Just("/".into()),
        Just("%".into()),
        Just("%3A".into()),
        Just("{}".into()),
        Just("{a}".into()),
        Just("0".into()),
        Just("-".into()),
        Just(" ".into()),
        Just("ä".into()),
        Just("a\u{308}".into()),
        Just("\u{0}".into()),
        any::<char>().prop_map(String::from),
    ];
    // Short strings of few characters are the most likely to collide.
    prop_oneof![
        3 => "[:/a]{0,3}",
        1 => vec(piece, 0..6).prop_map(|pieces| pieces.concat()),
    ]
}

type Call = (String, String, i64);

fn key(call: &Call) -> Result<String, LockError> {
    let (a, b, n) = call;
    render(format_args!("{}:{}/{:04}", segment(a), segment(b), segment(n))).map(|k| k.to_string())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..Default::default() })]

    #[test]
    fn different_values_make_different_keys(calls in vec((tricky(), tricky(), -1_i64..2), 2..60)) {
        let mut seen: HashMap<String, Call> = HashMap::new();
        for call in calls {
            match key(&call) {
                Ok(key) => {
                    let first = seen.entry(key).or_insert_with(|| call.clone());
                    prop_assert_eq!(&*first, &call);
                }
                Err(LockError::InvalidKey { .. }) => {
                    prop_assert!(call.0.is_empty() || call.1.is_empty(), "{call:?}");
                }
                Err(other) => prop_assert!(false, "{other}"),
            }
        }
    }

    #[test]
    fn a_key_is_read_back_as_the_values_it_was_made_of(a in "\\PC{1,40}", b in "(?s).{1,40}", n: i64) {
        let key = key(&(a.clone(), b.clone(), n)).unwrap();
        let (first, rest) = key.split_once(':').unwrap();
        let (second, number) = rest.split_once('/').unwrap();
        prop_assert_eq!(unescaped(first), a);
        prop_assert_eq!(unescaped(second), b);
        prop_assert_eq!(number.parse::<i64>().unwrap(), n);
    }

    #[test]
    fn widths_do_not_make_values_equal(values in vec("[0 :x]{1,4}", 2..10), width in 0_usize..8) {
        let mut seen: HashMap<String, String> = HashMap::new();
        for value in values {
            let key = render(format_args!("{:width$}:{:>width$}", segment(&value), segment(&value)));
            let first = seen.entry(key.unwrap().to_string()).or_insert_with(|| value.clone());
            prop_assert_eq!(&*first, &value);
        }
    }
}

fn unescaped(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        bytes.extend(rest[..at].bytes());
        bytes.push(u8::from_str_radix(&rest[at + 1..at + 3], 16).unwrap());
        rest = &rest[at + 3..];
    }
    bytes.extend(rest.bytes());
    String::from_utf8(bytes).unwrap()
}

struct Context {
    tenant: String,
}

trait Place {
    const NAME: &'static str;
}

struct Here;
struct There;

impl Place for Here {
    const NAME: &'static str = "a:";
}

impl Place for There {
    const NAME: &'static str = "a";
}

/// Everything that a key can be made of, in one key.
#[redis_lock(key("{N}:{ctx.tenant}/{id}:{n:03}|{place}", place = P::NAME), via = locks, guard = lock)]
fn everything<const N: u8, P: Place>(
    locks: &Locks,
    ctx: &Context,
    id: &str,
    n: i64,
) -> Result<String, LockError> {
    Ok(lock.key().into())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..Default::default() })]

    #[test]
    fn m03_all_sources_of_values_together_are_distinguished(
        calls in vec((0_usize..4, tricky(), tricky(), -1_i64..12), 2..20)
    ) {
        let locks = Locks::in_memory();
        let mut seen = HashMap::new();
        for call in calls {
            let (which, tenant, id, n) = call.clone();
            let ctx = &Context { tenant };
            let key = match which {
                0 => everything::<1, Here>(&locks, ctx, &id, n),
                1 => everything::<1, There>(&locks, ctx, &id, n),
                2 => everything::<12, Here>(&locks, ctx, &id, n),
                _ => everything::<12, There>(&locks, ctx, &id, n),
            };
            match key {
                Ok(key) => {
                    let first = seen.entry(key).or_insert_with(|| call.clone());
                    prop_assert_eq!(&*first, &call);
                }
                Err(LockError::InvalidKey { .. }) => prop_assert!(call.1.is_empty() || call.2.is_empty()),
                Err(other) => prop_assert!(false, "{other}"),
            }
        }
    }
}
