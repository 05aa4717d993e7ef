//! Puts the core's primitives beside a scheduler's types: each world of `worlds/` as it is, and once for each
//! change that it should notice.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

/// The sources of the core.
const CORE: &str = "../../redis-lock-core/src";

/// Stands in a world for a file of the core.
const MARK: &str = "// core: ";

/// A change that makes a primitive lose something: in this world, in this file, this text becomes that.
struct Change {
    world: &'static str,
    name: &'static str,
    file: &'static str,
    from: &'static str,
    to: &'static str,
}

include!("changes.in");

fn main() {
    println!("cargo::rerun-if-changed=worlds");
    println!("cargo::rerun-if-changed=changes.in");
    let (mut code, mut table) = (String::new(), String::new());
    let mut worlds: Vec<_> = CHANGES.iter().map(|change| change.world).collect();
    worlds.dedup();
    for world in worlds {
        let text = fs::read_to_string(format!("worlds/{world}.world")).expect("a world is there");
        let changes = CHANGES.iter().filter(|change| change.world == world).map(Some);
        for change in std::iter::once(None).chain(changes) {
            let module = change.map_or_else(|| world.into(), |it| format!("{world}_{}", it.name));
            let code_of_world =
                filled(&text, change).replace("crate::", &format!("crate::worlds::{module}::"));
            writeln!(code, "pub mod {module} {{\n{code_of_world}\n}}").unwrap();
            let change = change.map_or("", |change| change.name);
            writeln!(
                table,
                "    Case {{ world: \"{world}\", change: \"{change}\", run: {module}::run }},"
            )
            .unwrap();
        }
    }
    writeln!(code, "pub const CASES: &[Case] = &[\n{table}];").unwrap();
    let out = env::var("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&out).join("worlds.rs"), code).expect("it can be written");
}

/// A world with the files of the core in it, of which one may be changed.
fn filled(world: &str, change: Option<&Change>) -> String {
    let mut filled = String::new();
    for line in world.lines() {
        match line.trim_start().strip_prefix(MARK) {
            Some(file) => filled.push_str(&file_of_core(file, change)),
            None => filled.push_str(line),
        }
        filled.push('\n');
    }
    filled
}

fn file_of_core(file: &str, change: Option<&Change>) -> String {
    let path = format!("{CORE}/{file}");
    println!("cargo::rerun-if-changed={path}");
    let text = fs::read_to_string(&path).expect("the core has this file");
    let inner = |line: &&str| !line.starts_with("//!");
    // The tests of a file are its end.
    let text = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let text = text.lines().filter(inner).collect::<Vec<_>>().join("\n");
    match change.filter(|change| change.file == file) {
        None => text,
        Some(Change { world, name, from, to, .. }) => {
            let count = text.matches(from).count();
            assert_eq!(
                count, 1,
                "{world} {name}: the text to be changed stands {count} times in {file}"
            );
            text.replace(from, to)
        }
    }
}
