//! The words of a server's error, or of the driver's, as they are shown to people.

use redis::RedisError;

use crate::domain::label::harmless;

/// A server's words without its code, and without the place in a script: `… script: <hash>, on @user_script:9`
/// since Redis 7, `Error running script (call to f_<hash>): @user_script:9: …` before.
pub(super) fn said_by_server<'a>(code: &str, detail: &'a str) -> &'a str {
    let said = match detail.rsplit_once(" script: ") {
        Some((said, place)) if place.contains("@user_script") => said,
        _ => detail,
    };
    let said = match said.rsplit_once("@user_script:") {
        Some((_, rest)) => {
            rest.trim_start_matches(|c: char| c.is_ascii_digit() || ": -".contains(c))
        }
        None => said,
    };
    said.strip_prefix(code).unwrap_or(said).trim().trim_end_matches('.')
}

/// The driver's words without its name for their kind, and without quotes around a code.
pub(crate) fn said_by_driver(error: &RedisError, most: usize) -> String {
    let kind = format!(" - {:?}", error.kind());
    let said = harmless(error, most).replacen(&kind, "", 1);
    let said = match error.code() {
        Some(code) => said.replacen(&format!("{code:?}: "), &format!("{code} "), 1),
        None => said,
    };
    said.trim_end_matches('.').to_owned()
}
