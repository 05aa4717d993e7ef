//! The label by which people recognise a holder.

/// The longest label: it travels with every acquisition.
const MAX_LABEL: usize = 128;

/// The label of who names none.
pub(crate) fn host_and_process() -> String {
    format!("{}/{}", host(), super::env::process())
}

#[cfg(target_os = "linux")]
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(not(target_os = "linux"))]
fn host() -> String {
    std::env::var("HOSTNAME").or_else(|_| std::env::var("COMPUTERNAME")).unwrap_or_default()
}

/// Without what would confuse the value at the key, or a terminal.
pub(crate) fn printable(label: &str) -> String {
    let is_odd = |c: char| matches!(c, '+' | '#') || c.is_control();
    let plain = label.chars().map(|c| if is_odd(c) { '_' } else { c });
    let mut plain: String = plain.collect();
    while plain.len() > MAX_LABEL {
        plain.pop();
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_made_harmless() {
        assert_eq!(printable("a+b\nc#1"), "a_b_c_1");
        assert!(printable(&"ü".repeat(100)).len() <= MAX_LABEL);
    }
}
