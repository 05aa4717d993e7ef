//! Keys that are built as `#[redis_lock(key = "user:{name}")]` builds them.

/// The key, followed by the segments. A segment never contains a colon or a slash: ASCII letters,
/// digits and `-._~@+=` are kept, and every other byte becomes `%` and two digits.
pub(crate) fn joined(key: &str, segments: &[String]) -> String {
    let mut joined = key.to_owned();
    for segment in segments {
        joined.push(':');
        for byte in segment.bytes() {
            match byte.is_ascii_alphanumeric() || b"-._~@+=".contains(&byte) {
                true => joined.push(char::from(byte)),
                false => joined.push_str(&format!("%{byte:02X}")),
            }
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_escaped_and_joined() {
        let segments = ["a b:c/d%".to_owned(), "x-._~@+=9".into(), "ü".into()];
        assert_eq!(joined("user", &segments), "user:a%20b%3Ac%2Fd%25:x-._~@+=9:%C3%BC");
        assert_eq!(joined("a b", &[]), "a b");
    }
}
