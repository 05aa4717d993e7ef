//! The header `Idempotency-Key`.

use http::HeaderMap;

/// The longest key.
const MOST: usize = 255;

/// The key of a request, or none. `Err` says what is wrong with the header.
pub(super) fn of(headers: &HeaderMap) -> Result<Option<String>, &'static str> {
    let mut all = headers.get_all("idempotency-key").iter();
    let Some(value) = all.next() else { return Ok(None) };
    if all.next().is_some() {
        return Err("A request has one Idempotency-Key.");
    }
    let text = value.as_bytes().trim_ascii();
    if !text.iter().all(|byte| (0x20..0x7f).contains(byte)) {
        return Err("The Idempotency-Key has characters that are not printable ASCII.");
    }
    let text = String::from_utf8_lossy(text);
    let key = if text.starts_with('"') { unquoted(&text)? } else { text.into_owned() };
    match key.len() {
        0 => Err("The Idempotency-Key is empty."),
        1..=MOST => Ok(Some(key)),
        _ => Err("The Idempotency-Key is longer than 255 bytes."),
    }
}

/// The string in quotes, as RFC 8941 writes it.
fn unquoted(text: &str) -> Result<String, &'static str> {
    const MALFORMED: &str =
        "The Idempotency-Key has quotes that are not closed, or a wrong escape.";
    let mut key = String::new();
    let mut chars = text.chars().skip(1);
    while let Some(c) = chars.next() {
        match c {
            '\\' => key.push(chars.next().filter(|c| "\\\"".contains(*c)).ok_or(MALFORMED)?),
            '"' => return if chars.next().is_none() { Ok(key) } else { Err(MALFORMED) },
            c => key.push(c),
        }
    }
    Err(MALFORMED)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn key(value: &str) -> Option<String> {
        let mut headers = HeaderMap::new();
        headers.insert("idempotency-key", HeaderValue::from_bytes(value.as_bytes()).unwrap());
        of(&headers).ok().flatten()
    }

    #[test]
    fn a_quoted_key_and_a_bare_one_are_the_same() {
        for same in ["k-1", "\"k-1\"", "  k-1 ", " \"k-1\" "] {
            assert_eq!(key(same).as_deref(), Some("k-1"), "{same}");
        }
        assert_eq!(key(r#""a\"b\\c""#).as_deref(), Some(r#"a"b\c"#));
        assert_eq!(key(&"k".repeat(255)), Some("k".repeat(255)));
        assert_eq!(key("a b").as_deref(), Some("a b"));
    }

    #[test]
    fn a_key_that_is_empty_long_malformed_or_not_printable_is_refused() {
        let (long, quoted) = ("k".repeat(256), format!("\"{}\"", "k".repeat(256)));
        for wrong in
            ["", "  ", "\"\"", "\"k", "\"k\"x", "\"\\k\"", "\"\\", "k\tk", "kä", &long, &quoted]
        {
            assert_eq!(key(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_request_has_one_key() {
        let mut headers = HeaderMap::new();
        assert_eq!(of(&headers), Ok(None));
        headers.append("idempotency-key", HeaderValue::from_static("k"));
        headers.append("idempotency-key", HeaderValue::from_static("k"));
        assert!(of(&headers).is_err());
    }
}
