//! The scripts, each complete in itself.
//!
//! The first lines of a script name its keys and arguments. Variables are generated from these
//! names, so that no script counts positions. `EACH KEYS` and `EACH ARGV` are repeated for each
//! lock or token; a script gets those of the i-th one by `each(i)`, keys first, and how many there are
//! as `count`. Before them a script may say what it asks of the server, by `#!lua`.
//!
//! The letters of the modes are generated as well, from the table of kinds: `READ`, `WRITE` and
//! `PERMIT`, and all of them as `MODES`.

use std::fmt::Write as _;
use std::sync::LazyLock;

use redis::Script;

use crate::domain::kind::Kind;

/// A script and its hash.
pub(super) struct Lua {
    pub(super) code: String,
    pub(super) hash: String,
    #[cfg(test)]
    pub(super) head: Head,
}

impl Lua {
    fn of(library: &[&str], script: &'static str) -> Self {
        let head = Head::of(script);
        // The server takes what a script asks for from its very beginning.
        let (flags, script) = match script.split_once('\n') {
            Some((flags, rest)) if flags.starts_with("#!") => (format!("{flags}\n"), rest),
            _ => (String::new(), script),
        };
        let modes = if library.is_empty() { String::new() } else { modes() };
        let flags = flags + NUMBERS_ARE_REFUSED;
        let code = [&flags, &modes, &library.concat(), &head.variables(), script].concat();
        let hash = Script::new(&code).get_hash().to_owned();
        Self {
            code,
            hash,
            #[cfg(test)]
            head,
        }
    }
}

/// Redis 7.2.0 to 7.2.4 turn a number that a script passes on into a text like "3e+08", so a script turns
/// every large number into text first. In tests each call checks that.
const NUMBERS_ARE_REFUSED: &str = if cfg!(test) {
    "local server = redis
local redis = setmetatable({}, {__index = server})
for _, name in ipairs({'call', 'pcall'}) do
  redis[name] = function(...)
    for _, word in ipairs({...}) do
      if type(word) == 'number' and math.abs(word) > 1000 then error('a number: ' .. word) end
    end
    return server[name](...)
  end
end
"
} else {
    ""
};

/// The names of a script's keys and arguments.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Head {
    pub(super) keys: Vec<&'static str>,
    pub(super) each_keys: Vec<&'static str>,
    pub(super) args: Vec<&'static str>,
    pub(super) each_args: Vec<&'static str>,
}

impl Head {
    fn of(script: &'static str) -> Self {
        let named = |what: &str| {
            let line = script.lines().find_map(|line| line.strip_prefix(what));
            line.unwrap_or_default().split_whitespace().collect()
        };
        Self {
            keys: named("-- KEYS:"),
            each_keys: named("-- EACH KEYS:"),
            args: named("-- ARGV:"),
            each_args: named("-- EACH ARGV:"),
        }
    }

    /// The names as variables of the script.
    fn variables(&self) -> String {
        let mut code = fixed("KEYS", &self.keys) + &fixed("ARGV", &self.args);
        let keys = ("KEYS", self.keys.len(), self.each_keys.len());
        let args = ("ARGV", self.args.len(), self.each_args.len());
        let counted = if keys.2 > 0 { keys } else { args };
        if let (table, first, step @ 1..) = counted {
            // Writing to a string can't fail.
            let _ = writeln!(code, "local count = (#{table} - {first}) / {step}");
            let all: Vec<_> = each(keys).chain(each(args)).collect();
            let _ = writeln!(code, "local function each(i) return {} end", all.join(", "));
        }
        code
    }
}

/// The letters of the modes as variables of a script.
fn modes() -> String {
    let (mut code, mut all) = (String::new(), String::new());
    for traits in Kind::EACH.map(Kind::traits) {
        if let Some(mode) = traits.mode {
            // Writing to a string can't fail.
            let _ = writeln!(code, "local {} = '{mode}'", traits.name.to_uppercase());
            all += mode;
        }
    }
    code + &format!("local MODES = '{all}'\n")
}

fn fixed(table: &str, names: &[&str]) -> String {
    if names.is_empty() {
        return String::new();
    }
    let values: Vec<_> = (1..=names.len()).map(|at| format!("{table}[{at}]")).collect();
    format!("local {} = {}\n", names.join(", "), values.join(", "))
}

/// The i-th repeated keys or arguments, which begin after `first` others and repeat every `step`.
fn each((table, first, step): (&str, usize, usize)) -> impl Iterator<Item = String> {
    (1..=step).map(move |at| format!("{table}[{first} + {step} * (i - 1) + {at}]"))
}

macro_rules! script {
    ($name:ident: $($file:literal),+ with $($library:ident),*) => {
        pub(super) static $name: LazyLock<Lua> =
            LazyLock::new(|| Lua::of(&[$($library),*], concat!($(include_str!($file)),+)));
    };
}

const COMMON: &str = include_str!("lua/common.lua");
const QUEUE: &str = include_str!("lua/queue.lua");
const FENCE: &str = include_str!("lua/fence.lua");
const SHARED: &str = include_str!("lua/shared.lua");
const ALL: &str = include_str!("lua/all.lua");
const DIGEST: &str = include_str!("lua/digest.lua");

script!(ACQUIRE: "lua/acquire.lua" with COMMON, QUEUE, FENCE);
script!(RELEASE: "lua/release.lua" with COMMON, QUEUE);
script!(COMPLETE: "lua/complete.lua" with COMMON, QUEUE);
script!(SHARE_RELEASE: "lua/share_release.lua" with COMMON, QUEUE);
script!(SHARE_ACQUIRE: "lua/share_acquire.lua", "lua/acquire.lua" with COMMON, QUEUE, FENCE);
script!(RENEW: "lua/renew.lua" with COMMON);
script!(RENEW_MANY: "lua/renew_many.lua" with COMMON);
script!(DELETE: "lua/delete.lua" with);

script!(SHARED_ACQUIRE: "lua/shared_acquire.lua" with COMMON, QUEUE, FENCE, SHARED);
script!(SHARED_RELEASE: "lua/shared_release.lua" with COMMON, QUEUE, SHARED);
script!(SHARED_FREE: "lua/shared_free.lua" with COMMON, QUEUE, SHARED);
script!(SHARED_RENEW: "lua/shared_renew.lua" with COMMON, QUEUE, SHARED);
script!(SHARED_DOWNGRADE: "lua/shared_downgrade.lua" with COMMON, QUEUE, SHARED);

script!(ALL_ACQUIRE: "lua/all_acquire.lua" with COMMON, QUEUE, FENCE, ALL);
script!(ALL_RELEASE: "lua/all_release.lua" with COMMON, QUEUE);
script!(ALL_RENEW: "lua/all_renew.lua" with COMMON);
script!(ALL_RAISE: "lua/all_raise.lua" with FENCE);

script!(LOOK: "lua/look.lua" with COMMON, QUEUE, DIGEST);
script!(FORCE: "lua/force.lua" with COMMON, QUEUE, SHARED, DIGEST);

/// The scripts of the mutex, which are loaded at connect. The others are sent when they are first
/// needed.
pub(super) fn all() -> [&'static Lua; 4] {
    [&ACQUIRE, &DELETE, &RELEASE, &RENEW]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_variables() {
        let script =
            "-- KEYS: tombstone\n-- EACH KEYS: lock queue\n-- ARGV: token\n-- EACH ARGV: who\n";
        let code = "local tombstone = KEYS[1]\nlocal token = ARGV[1]\nlocal count = (#KEYS - 1) / 2\n\
             local function each(i) return KEYS[1 + 2 * (i - 1) + 1], KEYS[1 + 2 * (i - 1) + 2], \
             ARGV[1 + 1 * (i - 1) + 1] end\n";
        assert_eq!(Head::of(script).variables(), code);
        let without_keys = Head::of("-- ARGV: ttl\n-- EACH ARGV: lock token\n").variables();
        let code = "local ttl = ARGV[1]\nlocal count = (#ARGV - 1) / 2\n\
             local function each(i) return ARGV[1 + 2 * (i - 1) + 1], ARGV[1 + 2 * (i - 1) + 2] end\n";
        assert_eq!(without_keys, code);
        let code = "local queue = KEYS[1]\nlocal count = (#ARGV - 0) / 1\n\
             local function each(i) return ARGV[0 + 1 * (i - 1) + 1] end\n";
        assert_eq!(Head::of("-- KEYS: queue\n-- EACH ARGV: who\n").variables(), code);
    }

    #[test]
    fn what_a_script_asks_of_the_server_comes_before_all_else() {
        let script = "#!lua flags=allow-oom\n-- KEYS: lock\nreturn 1\n";
        let code = "#!lua flags=allow-oom\nlocal lock = KEYS[1]\n-- KEYS: lock\nreturn 1\n";
        let written =
            |library: &[&str]| Lua::of(library, script).code.replace(NUMBERS_ARE_REFUSED, "");
        assert_eq!(written(&[]), code);
        let modes =
            "local READ = 'r'\nlocal WRITE = 'w'\nlocal PERMIT = 'p'\nlocal MODES = 'rwp'\n";
        let code = format!(
            "#!lua flags=allow-oom\n{modes}local more = 1\nlocal lock = KEYS[1]\n-- KEYS: lock\nreturn 1\n"
        );
        assert_eq!(written(&["local more = 1\n"]), code);
    }
}
