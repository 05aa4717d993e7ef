//! Finds the name under which the compiled crate depends on `redis-locks`.

use std::path::Path;
use std::sync::OnceLock;
use std::{env, fs};

/// The name, if it differs so that `crate = ..` is needed. rustc would only say that there is no
/// `redis_locks`.
pub(crate) fn other_name() -> Option<&'static str> {
    static NAME: OnceLock<Option<String>> = OnceLock::new();
    let name = NAME.get_or_init(|| {
        let folder = env::var_os("CARGO_MANIFEST_DIR")?;
        let text = fs::read_to_string(Path::new(&folder).join("Cargo.toml")).ok()?;
        renamed(&text)
    });
    name.as_deref()
}

/// What to write where the crate has another name.
pub(crate) fn advice(name: &str) -> String {
    format!("this package calls `redis-locks` `{name}`; write `crate = ::{name}`")
}

/// `locks` of `locks = { package = "redis-locks", .. }`, if there is no `redis-locks` beside it.
fn renamed(manifest: &str) -> Option<String> {
    let mut found = None;
    let mut table = "";
    for line in manifest.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[') {
            table = header.trim_end_matches(']').rsplit('.').next().unwrap_or_default();
            if is_ours(table) {
                return None;
            }
            continue;
        }
        let Some((key, value)) = line.split_once('=') else { continue };
        let (key, value) = (key.trim(), value.replace(char::is_whitespace, ""));
        let key = key.split('.').next().unwrap_or_default();
        if is_ours(key) || value == "\"redis-locks\"" && key == "name" {
            return None;
        }
        if value.contains("package=\"redis-locks\"") {
            found = Some(key.trim_matches('"').replace('-', "_"));
        } else if key == "package" && value == "\"redis-locks\"" {
            found = Some(table.trim_matches('"').replace('-', "_"));
        }
    }
    found
}

fn is_ours(name: &str) -> bool {
    ["redis-locks", "redis_locks"].contains(&name.trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renamed_dependency_is_found() {
        for manifest in [
            "[dependencies]\nmy-locks = { package = \"redis-locks\", version = \"0.1\" }",
            "[dependencies]\nserde = \"1\"\nmy_locks={version=\"0.1\",package=\"redis-locks\"}",
            "[dependencies.my-locks]\nversion = \"0.1\"\npackage = \"redis-locks\"",
        ] {
            assert_eq!(renamed(manifest).as_deref(), Some("my_locks"), "{manifest}");
        }
        let advice = advice("my_locks");
        assert_eq!(
            advice,
            "this package calls `redis-locks` `my_locks`; write `crate = ::my_locks`"
        );
        for manifest in [
            "[dependencies]\nredis-locks = \"0.1\"",
            "[dependencies]\nredis-locks.workspace = true\nold = { package = \"redis-locks\" }",
            "[dependencies.redis-locks]\nversion = \"0.1\"",
            "[package]\nname = \"redis-locks\"\n[dev-dependencies]\nold = { package = \"redis-locks\" }",
            "[dependencies]\nserde = \"1\"",
            "",
        ] {
            assert_eq!(renamed(manifest), None, "{manifest}");
        }
    }
}
