//! What a server or the driver said of a failure, as errors show it to people.

use redis::RedisError;

use crate::domain::harmless::harmless;

/// A server's words without its code, and without the place in a script: `… script: <hash>, on @user_script:9`
/// since Redis 7, `Error running script (call to f_<hash>): @user_script:9: …` before.
pub(super) fn by_server<'a>(code: &str, detail: &'a str) -> &'a str {
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
pub(crate) fn by_driver(error: &RedisError, most: usize) -> String {
    let kind = format!(" - {:?}", error.kind());
    let said = harmless(error, most).replacen(&kind, "", 1);
    let said = match error.code() {
        Some(code) => said.replacen(&format!("{code:?}: "), &format!("{code} "), 1),
        None => said,
    };
    said.trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use redis::{ErrorKind, ServerErrorKind};

    use super::*;

    #[test]
    fn places_in_scripts_are_left_out() {
        for (code, detail, said) in [
            ("READONLY", "no writes here. script: 2cbf, on @user_script:379.", "no writes here"),
            ("NOPERM", "ACL failure in script: no right", "ACL failure in script: no right"),
            (
                "OOM",
                "Error running script (call to f_1): @user_script:7: @user_script: 7: -OOM no memory",
                "no memory",
            ),
            ("NOAUTH", "Authentication required.", "Authentication required"),
            ("ERR", "a script: of the user", "a script: of the user"),
        ] {
            assert_eq!(by_server(code, detail), said);
        }
    }

    #[test]
    fn names_that_only_the_driver_has_are_left_out() {
        let failed = ErrorKind::Server(ServerErrorKind::ResponseError);
        for (error, said) in [
            ((ErrorKind::InvalidClientConfig, "Missing hostname").into(), "Missing hostname"),
            ((failed, "It failed", "no database".to_owned()).into(), "It failed: no database"),
            (redis::make_extension_error("NOAUTH".into(), Some("Who?".into())), "NOAUTH Who?"),
        ] {
            assert_eq!(by_driver(&error, 80), said);
        }
        assert_eq!(by_driver(&(failed, "It failed").into(), 3), "It …");
    }
}
