//! Checks which options fit together.

use std::time::Duration;

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Error, Expr, ExprLit, Lit};

use super::{KeySource, Lease, OnLost, Options, Setting, Time, Waiting};
use crate::diagnostics::Mistakes;
use crate::function::Function;

/// The shortest lease that the runtime keeps.
const MIN_TTL: Duration = Duration::from_millis(100);

/// Reports what is missing and what contradicts. A contradiction is reported at the later option,
/// and names both.
pub(crate) fn check(options: &Options, mistakes: &mut Mistakes) {
    check_short(options, mistakes);
    check_bindings(options, mistakes);
    check_lease(options, mistakes);
    check_times(options, mistakes);
    check_calls(options, mistakes);
    check_once(options, mistakes);
    check_second_call(options, mistakes);
    if let (Some(prefix), Some(Setting { name, value: key })) = (&options.prefix, &options.key)
        && key.has_plain_keys()
    {
        let message = format!(
            "`prefix = {}` of the block stands before templates, and these keys are expressions; list \
             templates, `keys = [\"a:{{x}}\", …]`, or move the function out of the block",
            prefix.value.token()
        );
        mistakes.at(name, message);
    }
}

/// Refuses options that a lock without a lease, without renewal, or of this kind can't have.
fn check_lease(options: &Options, mistakes: &mut Mistakes) {
    let Options { ttl, renew, max_hold, repair_orphan, linger, margin, kind, .. } = options;
    let mut clash = |one, other, why| clash(options, mistakes, one, other, why);
    let never = ttl.as_ref().and_then(|ttl| match &ttl.value {
        Lease::Never(text) => Some(At::new(ttl, &format!("ttl = {}", text.token()), text)),
        Lease::For(_) => None,
    });
    let on = switched(renew, true);
    let off = switched(renew, false);
    let limit = max_hold.as_ref().map(|limit| At::new(limit, "max_hold", limit.value.written()));
    let repair = repair_orphan
        .as_ref()
        .map(|repair| At::new(repair, "repair_orphan", repair.value.written()));
    let shared = kind.as_ref().map(|kind| At::new(kind, &kind.name.to_string(), &kind.name));

    clash(never.clone(), on, "a lock that never expires has nothing to renew");
    clash(never.clone(), limit.clone(), "only the release ends a lock that never expires");
    clash(never.clone(), repair, "locks that never expire look like orphans");
    let linger = linger.as_ref().map(|linger| At::new(linger, "linger", linger.value.written()));
    clash(never.clone(), linger.clone(), "a lock that never expires is kept until its release");
    clash(shared.clone(), linger, "only an exclusive lock is kept while nobody wants it");
    let margin = margin.as_ref().map(|it| At::new(it, "margin", it.value.written()));
    clash(never.clone(), margin, "only the release ends a lock that never expires");
    clash(never, shared, "only an exclusive lock can be held without a lease");
    clash(limit, off, "max_hold limits renewal, and there is none");
}

/// Times that don't fit each other.
fn check_times(options: &Options, mistakes: &mut Mistakes) {
    let Options { ttl, renew, max_hold, min_hold, .. } = options;
    let mut clash = |one, other, why| clash(options, mistakes, one, other, why);
    let off = switched(renew, false);
    let least = setting_time(min_hold).and_then(Time::known);
    let lease = ttl_time(ttl).and_then(Time::known);
    let most = setting_time(max_hold).and_then(Time::known);
    let least_at = min_hold.as_ref().map(|least| At::new(least, "min_hold", least.value.written()));
    if let (Some(least), Some(lease)) = (least, lease)
        && least > lease
        && off.is_some()
    {
        let ttl_at = ttl.as_ref().map(|ttl| At::new(ttl, "ttl", &ttl.name));
        let why = "the lease ends first, and it is not renewed; raise `ttl` or allow renewal";
        clash(least_at.clone(), ttl_at, why);
    }
    if let (Some(least), Some(most)) = (least, most)
        && least > most
    {
        let most_at = max_hold.as_ref().map(|most| At::new(most, "max_hold", most.value.written()));
        clash(least_at, most_at, "the least time is longer than the most");
    }
}

/// Options that no call of the function could ever make use of together.
fn check_calls(options: &Options, mistakes: &mut Mistakes) {
    let mut clash = |one, other, why| clash(options, mistakes, one, other, why);
    let kind = &options.kind;
    let shared = kind.as_ref().map(|kind| At::new(kind, &kind.name.to_string(), &kind.name));
    let at_once = shared.clone().filter(|kind| kind.name != "write");
    clash(
        options.fence.as_ref().map(|fence| At::new(fence, "fence", &fence.value)),
        at_once,
        "several hold it at once, so no number says whose write is the latest",
    );
    if let (Some(busy), Some(Setting { name, value: Waiting::Forever(text) }), None) =
        (&options.on_busy, &options.wait, options.max_waiters.as_ref().or(options.queue.as_ref()))
    {
        let wait = At {
            name: name.clone(),
            value: text.to_token_stream(),
            shown: "wait = \"forever\"".into(),
        };
        clash(
            Some(At::new(busy, "on_busy", &busy.value)),
            Some(wait),
            "a call that waits for ever never finds the lock busy",
        );
    }
    if let Some(Setting { name, value: KeySource::List(_) | KeySource::Iterator(_) }) = &options.key
    {
        let keys = At { name: name.clone(), value: name.to_token_stream(), shown: "keys".into() };
        clash(
            Some(keys),
            shared,
            "several keys are locked exclusively, all or nothing; other sorts take a single `key`",
        );
    }
}

/// What a success that is remembered does not go with.
fn check_once(options: &Options, mistakes: &mut Mistakes) {
    let Options { once, on_done, ttl, kind, key, reentrant, linger, min_hold, .. } = options;
    if let (Some(done), None, false) = (on_done, once, options.are_defaults) {
        let message = "`on_done` is for what is done once; say for how long, as `once = \"24h\"`";
        mistakes.at(&done.name, message);
    }
    let Some(once) = once else { return };
    let period = At::new(once, "once", once.value.written());
    let mut clash =
        |other: Option<At>, why| clash(options, mistakes, Some(period.clone()), other, why);
    let named = |name: &Ident| At {
        name: name.clone(),
        value: name.to_token_stream(),
        shown: name.to_string(),
    };
    let never = ttl.as_ref().filter(|ttl| matches!(ttl.value, Lease::Never(_)));
    clash(never.map(|ttl| named(&ttl.name)), "a lock that never expires can't be done for a while");
    let only = "only an exclusive lock of one key remembers a success";
    clash(kind.as_ref().map(|kind| named(&kind.name)), only);
    let is_several = |key: &&Setting<KeySource>| {
        matches!(key.value, KeySource::List(_) | KeySource::Iterator(_))
    };
    clash(key.as_ref().filter(is_several).map(|key| named(&key.name)), only);
    let joins = "a call that joins another one does not succeed by itself";
    clash(reentrant.as_ref().map(|it| named(&it.name)), joins);
    clash(linger.as_ref().map(|it| named(&it.name)), "its lock is not kept for the next call");
    if setting_time(min_hold).and_then(Time::known) > once.value.known()
        && once.value.known().is_some()
    {
        clash(
            min_hold.as_ref().map(|it| named(&it.name)),
            "the lock is kept for longer than the success is remembered",
        );
    }
}

/// What only shows beside the function: words that are not its arguments, and what its body does.
pub(crate) fn check_within(options: &Options, function: &Function, mistakes: &mut Mistakes) {
    for value in [&options.renew, &options.fair].into_iter().flatten().map(|it| &it.value) {
        let Expr::Path(path) = value else { continue };
        let Some(word) = path.path.get_ident() else { continue };
        let is_word = ["no", "off", "none", "None", "never", "False", "yes", "on", "True"];
        if is_word.iter().any(|it| word == it) && function.names().iter().all(|(it, _)| it != word)
        {
            mistakes.at(word, "expected `true` or `false`");
        }
    }
    let Some(Setting { value: guard, .. }) = &options.guard else { return };
    if let Some(method) = ended_by(guard, function.body.stream()) {
        let message = format!(
            "the body only borrows `{guard}`, and the attribute gives the lock back when the body ends; \
             leave `{guard}.{method}(…)` out, or acquire the lock in the body, by \
             `locks.mutex(\"…\").acquire()`"
        );
        mistakes.at(method, message);
    }
}

/// The method that takes this guard by value, where every use of its name is that of a receiver.
fn ended_by(guard: &Ident, body: TokenStream) -> Option<Ident> {
    const TAKE: [&str; 9] = [
        "release",
        "blocking_release",
        "release_in_background",
        "detach",
        "complete",
        "complete_with",
        "blocking_complete",
        "downgrade",
        "blocking_downgrade",
    ];
    let mut found = None;
    let is_receiver = receives(guard, body, &mut |method| {
        if TAKE.iter().any(|it| method == it) {
            found.get_or_insert_with(|| method.clone());
        }
    });
    found.filter(|_| is_receiver)
}

/// Calls `seen` with each method of `name`; whether the name is used for nothing else.
fn receives(name: &Ident, tokens: TokenStream, seen: &mut impl FnMut(&Ident)) -> bool {
    let trees: Vec<TokenTree> = tokens.into_iter().collect();
    trees.iter().enumerate().all(|(at, tree)| match tree {
        TokenTree::Group(group) => receives(name, group.stream(), seen),
        TokenTree::Ident(word) if word == name => match (trees.get(at + 1), trees.get(at + 2)) {
            (Some(TokenTree::Punct(dot)), Some(TokenTree::Ident(method)))
                if dot.as_char() == '.' =>
            {
                seen(method);
                true
            }
            _ => false,
        },
        _ => true,
    })
}

/// What options for a second call don't go with, and why.
const SECOND_CALL: [(&str, &str, &str); 31] = [
    ("queue", "wait = \"none\"", "no call waits then, so leave `queue` out"),
    ("queue", "keys", "each key has a line, so lock one key that stands for all of them"),
    ("queue", "linger", "a call with a place in line keeps no idle lease"),
    ("queue", "share", "calls that share wait for the same run and not for a turn"),
    ("newest", "queue", "a newer call takes the place of the one that waits, so there is no line"),
    ("newest", "wait = \"none\"", "a newer call waits until the older one has ended"),
    ("newest", "min_hold", "the lock would stay after the older call has left"),
    ("newest", "ttl = \"never\"", "only renewals are certain to tell a holder of a newer call"),
    ("newest", "renew = false", "only renewals are certain to tell a holder of a newer call"),
    ("newest", "on_lost = finish", "the older body has to end, and this lets it run on"),
    ("newest", "fair = false", "a newer call takes the place of the older one in line"),
    ("newest", "reentrant", "a call that joins another one can't replace it"),
    ("newest", "linger", "an idle lease is kept for calls of this process only"),
    ("newest", "once", "a call that was replaced has done nothing that could be remembered"),
    ("newest", "share", "an older call would wait for the value of the one that replaces it"),
    ("newest", "keys", ONE_MUTEX),
    ("newest", "read", ONE_MUTEX),
    ("newest", "write", ONE_MUTEX),
    ("newest", "permits", ONE_MUTEX),
    ("share", "once", "`replay` gives the value to calls that wait as well"),
    ("share", "ttl = \"never\"", "a run that died would keep all others waiting"),
    ("share", "reentrant", "a call that joins another one runs its own body"),
    ("share", "linger", "an idle lease has no run whose value could be shared"),
    ("share", "keys", ONE_MUTEX),
    ("share", "read", ONE_MUTEX),
    ("share", "write", ONE_MUTEX),
    ("share", "permits", ONE_MUTEX),
    ("replay", "on_done", "a call that finds it done returns the stored value"),
    ("slot", "keys", "only one of several permits has a number"),
    ("slot", "read", "only one of several permits has a number"),
    ("slot", "write", "only one of several permits has a number"),
];

const ONE_MUTEX: &str = "only an exclusive lock of one key has it";

/// What options for a second call need beside them, unless a block may leave that to its functions.
const NEEDED: [(&str, &[&str], &str); 4] = [
    ("replay", &["once"], "say for how long the value is kept, as `once = \"24h\"`"),
    (
        "same",
        &["once", "share"],
        "it compares calls for one result, so add `once = \"24h\"` or `share`",
    ),
    ("on_superseded", &["newest"], "only a call with `newest` is superseded, so add `newest`"),
    ("slot", &["permits"], "only one of several permits has a number, so add `permits = 4`"),
];

fn check_second_call(options: &Options, mistakes: &mut Mistakes) {
    for (option, other, why) in SECOND_CALL {
        clash(options, mistakes, given(options, option), given(options, other), why);
    }
    for (option, needed, advice) in NEEDED {
        let is_there = needed.iter().any(|needed| given(options, needed).is_some());
        let clashes =
            option == "slot" && (options.kind.is_some() || given(options, "keys").is_some());
        if let Some(At { name, .. }) = given(options, option).filter(|_| !options.are_defaults)
            && !is_there
            && !clashes
        {
            mistakes.at(&name, format!("`{option}` says nothing here: {advice}"));
        }
    }
}

/// Where an option was given, with this value if there is one.
fn given(options: &Options, shown: &str) -> Option<At> {
    let (wanted, value) = shown.split_once(" = ").unwrap_or((shown, ""));
    let name = options.given.iter().find(|name| *name == wanted)?;
    let value = match (wanted, value) {
        (_, "") => name.to_token_stream(),
        ("wait", _) => match &options.wait.as_ref()?.value {
            Waiting::None => name.to_token_stream(),
            _ => return None,
        },
        ("ttl", _) => match &options.ttl.as_ref()?.value {
            Lease::Never(text) => text.to_token_stream(),
            Lease::For(_) => return None,
        },
        ("on_lost", _) if options.on_lost.as_ref()?.value == OnLost::Finish => {
            name.to_token_stream()
        }
        ("renew" | "fair", _) => {
            let setting = if wanted == "renew" { &options.renew } else { &options.fair };
            switched(setting, false)?.value
        }
        _ => return None,
    };
    Some(At { name: name.clone(), value, shown: shown.to_owned() })
}

fn clash(
    options: &Options,
    mistakes: &mut Mistakes,
    one: Option<At>,
    other: Option<At>,
    why: &str,
) {
    if let (Some(one), Some(other)) = (one, other) {
        mistakes.add(contradiction(options, &one, &other, why));
    }
}

fn check_short(options: &Options, mistakes: &mut Mistakes) {
    for (name, time) in
        [("ttl", ttl_time(&options.ttl)), ("repair_orphan", setting_time(&options.repair_orphan))]
    {
        if let Some(Time::Known(short, text)) = time
            && *short < MIN_TTL
        {
            let message = format!("a {name} below 100ms is too short to be kept; \"30s\" is usual");
            mistakes.at(text, message);
        }
    }
}

fn check_bindings(options: &Options, mistakes: &mut Mistakes) {
    let bound: Vec<_> = options.bindings().collect();
    for (at, one) in bound.iter().enumerate() {
        for other in bound[..at].iter().filter(|other| other.value == one.value) {
            let (name, earlier) = (&one.name, &other.name);
            let message =
                format!("`{earlier}` and `{name}` both bind `{}`; the body sees one", one.value);
            mistakes.at(later(options, earlier, name, &other.value, &one.value), message);
        }
    }
}

/// The value of the option that was given later.
fn later<'a, T>(
    options: &Options,
    one: &Ident,
    other: &Ident,
    of_one: &'a T,
    of_other: &'a T,
) -> &'a T {
    let place = |name: &Ident| options.given.iter().position(|given| given == name);
    if place(one) > place(other) { of_one } else { of_other }
}

/// One side of a contradiction, if it was given.
#[derive(Clone)]
struct At {
    name: Ident,
    value: TokenStream,
    shown: String,
}

impl At {
    fn new<T>(setting: &Setting<T>, shown: &str, value: impl ToTokens) -> Self {
        Self { name: setting.name.clone(), value: value.to_token_stream(), shown: shown.into() }
    }
}

fn contradiction(options: &Options, one: &At, other: &At, why: &str) -> Error {
    let place = |at: &At| options.given.iter().position(|name| *name == at.name);
    let (earlier, later) = if place(one) <= place(other) { (one, other) } else { (other, one) };
    let message = format!("`{}` contradicts `{}`: {why}", later.shown, earlier.shown);
    Error::new_spanned(&later.value, message)
}

fn ttl_time(ttl: &Option<Setting<Lease>>) -> Option<&Time> {
    match ttl {
        Some(Setting { value: Lease::For(time), .. }) => Some(time),
        _ => None,
    }
}

fn setting_time(setting: &Option<Setting<Time>>) -> Option<&Time> {
    setting.as_ref().map(|setting| &setting.value)
}

/// The switch, if it was given as the literal `wanted`.
fn switched(switch: &Option<Setting<Expr>>, wanted: bool) -> Option<At> {
    let switch = switch.as_ref()?;
    match &switch.value {
        Expr::Lit(ExprLit { lit: Lit::Bool(given), .. }) if given.value == wanted => {
            Some(At::new(switch, &format!("{} = {wanted}", switch.name), given))
        }
        _ => None,
    }
}
