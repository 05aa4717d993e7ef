//! Times as people write them, the same as in the attribute: `1m30s`, `500ms`, `2h`.

use std::time::Duration;

use redis_lock_core::Wait;

const FORMS: &str = "write a time with its unit, such as 500ms, 30s, 1m30s or 2h";

pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let letters = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let millis = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(FORMS.into()),
        };
        let number: u64 = number.parse().map_err(|_| FORMS.to_owned())?;
        let millis = number.checked_mul(millis).ok_or("that is too long")?;
        total = total.checked_add(Duration::from_millis(millis)).ok_or("that is too long")?;
        rest = after;
    }
    if total.is_zero() { Err(FORMS.into()) } else { Ok(total) }
}

/// Where no time at all has a meaning, too.
pub(crate) fn parse_or_zero(text: &str) -> Result<Duration, String> {
    if matches!(text, "0" | "0s") { Ok(Duration::ZERO) } else { parse(text) }
}

pub(crate) fn parse_wait(text: &str) -> Result<Wait, String> {
    match text {
        "forever" => Ok(Wait::Forever),
        "none" => Ok(Wait::None),
        text => match seconds(text).map_or_else(|| parse(text), Ok) {
            Ok(Duration::ZERO) => Ok(Wait::None),
            Ok(time) => Ok(Wait::For(time)),
            Err(error) => Err(format!("{error}, a number of seconds, `none` or `forever`")),
        },
    }
}

/// A bare number, as flock(1) takes it.
fn seconds(text: &str) -> Option<Duration> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let seconds = text.parse().ok().filter(|_| is_number)?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// A time in its two largest units.
pub(crate) fn show(duration: Duration) -> String {
    let (seconds, millis) = (duration.as_secs(), duration.subsec_millis());
    match seconds {
        0 => format!("{millis}ms"),
        1..10 => format!("{seconds}.{}s", millis / 100),
        10..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_shown() {
        assert_eq!(parse("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse("500ms"), Ok(Duration::from_millis(500)));
        for wrong in ["", "5", "s", "0s", "-1s", "1.5s", "3w", "1s 2s", "99999999999999999d"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_wait("none"), Ok(Wait::None));
        assert_eq!(parse_wait("0"), Ok(Wait::None));
        assert_eq!(parse_wait("2.5"), Ok(Wait::For(Duration::from_millis(2_500))));
        for wrong in ["", "-1", "1e3", "inf", "1.5s", "."] {
            assert!(parse_wait(wrong).is_err(), "{wrong}");
        }
        for (millis, shown) in
            [(7, "7ms"), (1_250, "1.2s"), (59_000, "59s"), (90_000, "1m30s"), (90_000_000, "1d01h")]
        {
            assert_eq!(show(Duration::from_millis(millis)), shown);
        }
    }
}
