//! Durations as people write them: `1m30s`.

use std::time::Duration;

/// The accepted forms, for messages.
pub(crate) const FORMS: &str = "write e.g. `\"500ms\"`, `\"30s\"` or `\"1m30s\"`";

/// Units from the longest to the shortest, in milliseconds.
const UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Above this a duration is more likely a slip than intended.
const MOST_MILLIS: u64 = 365 * 86_400_000;

/// Reads `1m30s`, `500ms`, `2h`: whole numbers, each with its unit, the longest unit first.
///
/// Zero is a duration; whether it makes sense is for the option to say.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    if text.is_empty() {
        return Err(format!("an empty string is not a duration; {FORMS}"));
    }
    if text.starts_with('-') {
        return Err(format!("`{text}` is negative, and time only goes forward; {FORMS}"));
    }
    let mut rest = text;
    let mut total = 0_u64;
    let mut next_unit = 0;
    while !rest.is_empty() {
        let (number, after) = split_at_first(rest, |c| !c.is_ascii_digit());
        let (unit, after) = split_at_first(after, |c| c.is_ascii_digit());
        if number.is_empty() {
            return Err(not_a_duration(text));
        }
        if unit.is_empty() && number == text {
            return Err(format!("`{text}` has no unit; write `\"{text}s\"` for seconds"));
        }
        if unit.is_empty() {
            // After hours come minutes.
            let advice =
                UNITS.get(next_unit).map(|(unit, _)| format!("write e.g. `\"{text}{unit}\"`"));
            let advice = advice.unwrap_or_else(|| FORMS.to_owned());
            return Err(format!("`{text}` is not a duration: `{number}` has no unit; {advice}"));
        }
        if unit.starts_with('.') {
            return Err(format!(
                "`{text}` has a fraction; use a smaller unit instead, e.g. `\"1s500ms\"`"
            ));
        }
        let Some(place) = UNITS.iter().position(|(name, _)| *name == unit) else {
            return Err(unknown_unit(text, unit));
        };
        if place < next_unit {
            return Err(format!(
                "`{text}` names its units out of order; each unit once, the longest first: \
                 `\"1h30m\"`"
            ));
        }
        next_unit = place + 1;
        total = number
            .parse::<u64>()
            .ok()
            .and_then(|count| count.checked_mul(UNITS[place].1))
            .and_then(|millis| total.checked_add(millis))
            .filter(|millis| *millis <= MOST_MILLIS)
            .ok_or_else(|| format!("`{text}` is longer than a year; use a shorter one: {FORMS}"))?;
        rest = after;
    }
    Ok(Duration::from_millis(total))
}

fn split_at_first(text: &str, stop: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(stop).unwrap_or(text.len()))
}

fn not_a_duration(text: &str) -> String {
    format!("`{text}` is not a duration; {FORMS}")
}

fn unknown_unit(text: &str, unit: &str) -> String {
    let word = unit.trim();
    if ["us", "µs", "ns"].contains(&word) {
        return format!(
            "`{text}` is not a duration: `{word}` is finer than a lock can tell apart; the \
             smallest unit is `ms`"
        );
    }
    match meant(text) {
        Some(meant) if meant_unit(word) == Some(word) => {
            format!("`{text}` is not a duration; write `\"{meant}\"`, without spaces")
        }
        Some(meant) => {
            format!("`{text}` is not a duration: `{unit}` is not a unit; write `\"{meant}\"`")
        }
        None => not_a_duration(text),
    }
}

/// The same time as it is read, where each unit in it is known by another name.
fn meant(text: &str) -> Option<String> {
    let (mut rest, mut meant) = (text, String::new());
    while !rest.is_empty() {
        let (number, after) = split_at_first(rest, |c| !c.is_ascii_digit());
        let (unit, after) = split_at_first(after, |c| c.is_ascii_digit());
        meant.push_str(number);
        meant.push_str(meant_unit(unit.trim())?);
        rest = after;
    }
    Some(meant)
}

fn meant_unit(word: &str) -> Option<&'static str> {
    match word.to_lowercase().as_str() {
        "s" | "sec" | "secs" | "second" | "seconds" => Some("s"),
        "m" | "min" | "mins" | "minute" | "minutes" => Some("m"),
        "h" | "hr" | "hrs" | "hour" | "hours" => Some("h"),
        "d" | "day" | "days" => Some("d"),
        "ms" | "msec" | "msecs" | "milli" | "millis" | "millisecond" | "milliseconds" => Some("ms"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_is_read() {
        for (text, millis) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("1m30s", 90_000),
            ("2h", 7_200_000),
            ("1d", 86_400_000),
            ("1s500ms", 1_500),
            ("0s", 0),
            ("365d", MOST_MILLIS),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn every_refusal_tells_what_to_write() {
        for (text, part) in [
            ("", "an empty string is not a duration"),
            ("30", "write `\"30s\"` for seconds"),
            ("1m30", "has no unit"),
            ("-5s", "negative"),
            ("30x", "`30x` is not a duration"),
            ("s", "is not a duration"),
            ("30sec", "write `\"30s\"`"),
            ("5 min", "write `\"5m\"`"),
            ("1m 30s", "write `\"1m30s\"`, without spaces"),
            ("1 min 30 secs", "write `\"1m30s\"`"),
            ("1m 30x", "is not a duration; write e.g."),
            ("5S", "write `\"5s\"`"),
            ("10us", "the smallest unit is `ms`"),
            ("1.5s", "use a smaller unit"),
            ("30s1m", "out of order"),
            ("1s1s", "out of order"),
            ("1000d", "longer than a year"),
            ("99999999999999999999s", "longer than a year"),
            ("18446744073709551615d", "longer than a year"),
            (" 5s", "is not a duration"),
        ] {
            let refusal = parse(text).expect_err(text);
            assert!(refusal.contains(part), "{text}: {refusal}");
        }
    }

    proptest::proptest! {
        #[test]
        fn nothing_makes_it_panic(text in "[0-9smhd. -]{0,24}|\\PC{0,24}") {
            if let Ok(duration) = parse(&text) {
                proptest::prop_assert!(duration.as_millis() <= u128::from(MOST_MILLIS));
            }
        }

        #[test]
        fn what_is_written_is_what_is_read(h in 0..9_u64, m in 0..60_u64, s in 0..60_u64, ms in 0..1000_u64) {
            let read = parse(&format!("{h}h{m}m{s}s{ms}ms")).unwrap();
            proptest::prop_assert_eq!(read.as_millis(), u128::from(((h * 60 + m) * 60 + s) * 1000 + ms));
        }
    }
}
