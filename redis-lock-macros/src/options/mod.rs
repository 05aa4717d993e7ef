//! The options of the attribute, as the user wrote them.

mod check;
mod literals;
mod parse;
mod readers;
mod table;
mod value;

pub(crate) use check::{check, check_within};
pub(crate) use parse::{DEFAULTS, check_defaults, parse};
pub(crate) use readers::token_form;
pub(crate) use value::{
    Element, KeySource, Kind, Lease, OnLost, Release, TemplateArgument, Time, Waiting,
};

use proc_macro2::Ident;
use syn::{Expr, LitStr, Path};

/// One option that was given: its name, for messages that point at it, and its value.
pub(crate) struct Setting<T> {
    pub(crate) name: Ident,
    pub(crate) value: T,
}

/// The options that were given. The manager's defaults apply to the others.
#[derive(Default)]
pub(crate) struct Options {
    /// Every name, in the order of writing.
    given: Vec<Ident>,
    pub(crate) key: Option<Setting<KeySource>>,
    pub(crate) kind: Option<Setting<Kind>>,
    pub(crate) ttl: Option<Setting<Lease>>,
    pub(crate) wait: Option<Setting<Waiting>>,
    pub(crate) renew: Option<Setting<Expr>>,
    pub(crate) max_hold: Option<Setting<Time>>,
    pub(crate) min_hold: Option<Setting<Time>>,
    pub(crate) once: Option<Setting<Time>>,
    pub(crate) queue: Option<Setting<Expr>>,
    pub(crate) newest: Option<Setting<()>>,
    pub(crate) replay: Option<Setting<()>>,
    pub(crate) share: Option<Setting<()>>,
    pub(crate) same: Option<Setting<Expr>>,
    pub(crate) on_busy: Option<Setting<Expr>>,
    pub(crate) on_done: Option<Setting<Expr>>,
    pub(crate) on_superseded: Option<Setting<Expr>>,
    pub(crate) on_error: Option<Setting<Expr>>,
    pub(crate) on_lost: Option<Setting<OnLost>>,
    pub(crate) release: Option<Setting<Release>>,
    pub(crate) fence: Option<Setting<Ident>>,
    pub(crate) guard: Option<Setting<Ident>>,
    pub(crate) slot: Option<Setting<Ident>>,
    pub(crate) via: Option<Setting<Expr>>,
    pub(crate) reentrant: Option<Setting<()>>,
    pub(crate) fair: Option<Setting<Expr>>,
    pub(crate) repair_orphan: Option<Setting<Time>>,
    pub(crate) linger: Option<Setting<Time>>,
    pub(crate) label: Option<Setting<Expr>>,
    pub(crate) max_waiters: Option<Setting<Expr>>,
    pub(crate) outage: Option<Setting<Time>>,
    pub(crate) margin: Option<Setting<Time>>,
    pub(crate) request: Option<Setting<Ident>>,
    pub(crate) krate: Option<Setting<Path>>,
    /// What a block around the function puts before its templates.
    pub(crate) prefix: Option<Setting<LitStr>>,
    /// The type or the trait whose method the function is, where a block around it tells.
    pub(crate) owner: Option<Ident>,
    /// Whether these are those of a block, and not those of a function.
    are_defaults: bool,
}

fn name_of<T>(setting: &Option<Setting<T>>) -> Option<&Ident> {
    setting.as_ref().map(|it| &it.name)
}

impl Options {
    /// Options that take an expression as it stands, by the methods that they become.
    pub(crate) fn plain(&self) -> [(&'static str, &Option<Setting<Expr>>); 5] {
        [
            ("queue", &self.queue),
            ("renew", &self.renew),
            ("fair", &self.fair),
            ("max_waiters", &self.max_waiters),
            ("label", &self.label),
        ]
    }

    /// Options that are a time, by the methods that they become.
    pub(crate) fn times(&self) -> [(&'static str, &Option<Setting<Time>>); 7] {
        [
            ("max_hold", &self.max_hold),
            ("min_hold", &self.min_hold),
            ("once", &self.once),
            ("repair_orphan", &self.repair_orphan),
            ("linger", &self.linger),
            ("outage", &self.outage),
            ("margin", &self.margin),
        ]
    }

    /// Options without a value, by the methods that they become.
    pub(crate) fn flags(&self) -> [(&'static str, Option<&Ident>); 6] {
        [
            ("fenced", name_of(&self.fence)),
            ("slotted", name_of(&self.slot)),
            ("reentrant", name_of(&self.reentrant)),
            ("newest", name_of(&self.newest)),
            ("replay", name_of(&self.replay)),
            ("share", name_of(&self.share)),
        ]
    }

    /// The variables that the body sees, in the order in which they are given.
    pub(crate) fn bindings(&self) -> impl Iterator<Item = &Setting<Ident>> {
        [&self.fence, &self.guard, &self.slot].into_iter().flatten()
    }

    /// The option by which other calls get the value of this one.
    pub(crate) fn passes_value_on(&self) -> Option<&Ident> {
        self.replay.as_ref().or(self.share.as_ref()).map(|it| &it.name)
    }

    /// The values to return where the lock failed: they are computed outside of the body.
    pub(crate) fn handlers(&self) -> impl Iterator<Item = &Expr> {
        [&self.on_superseded, &self.on_error].into_iter().flatten().map(|handler| &handler.value)
    }

    /// The values to return where the body does not run.
    pub(crate) fn answers(&self) -> impl Iterator<Item = &Expr> {
        [&self.on_busy, &self.on_done].into_iter().flatten().map(|answer| &answer.value)
    }

    /// Whether something was written that was or may have been meant as the key.
    pub(crate) fn tries_a_key(&self) -> bool {
        self.given.iter().map(ToString::to_string).any(|name| {
            let [key, keys, ..] = &table::OPTIONS;
            name == key.name
                || name == keys.name
                || [key, keys].iter().any(|entry| entry.advice(&name).is_some())
                || crate::suggest::closest(&name, [key.name, keys.name]).is_some()
        })
    }
}
