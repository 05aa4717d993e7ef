//! Parses the few forms of reply that almost every command gets.
//!
//! The driver's parser takes longer for such a reply than all other work on it. Replies of any
//! other form are left to that parser.

use redis::Value;

/// A number with more digits may overflow.
const DIGITS: usize = 18;

/// The reply that the stream begins with, and its length; `None` when it is incomplete or of
/// another form.
pub(super) fn read(bytes: &[u8]) -> Option<(Value, usize)> {
    match bytes {
        [b'+', b'O', b'K', b'\r', b'\n', ..] => Some((Value::Okay, 5)),
        [b'$', b'-', b'1', b'\r', b'\n', ..] => Some((Value::Nil, 5)),
        [b'_', b'\r', b'\n', ..] => Some((Value::Nil, 3)),
        [b'*', b'0', b'\r', b'\n', ..] => Some((Value::Array(Vec::new()), 4)),
        [b':', rest @ ..] => integer(rest),
        _ => None,
    }
}

fn integer(text: &[u8]) -> Option<(Value, usize)> {
    let digits = text.iter().take(DIGITS).take_while(|byte| byte.is_ascii_digit()).count();
    let (number, end) = text.split_at_checked(digits)?;
    if digits == 0 || !end.starts_with(b"\r\n") {
        return None;
    }
    let number = number.iter().fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'));
    Some((Value::Int(number), digits + 3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::scan::{Scanned, scan};

    #[test]
    fn what_is_read_here_is_what_the_parser_reads() {
        let replies = [
            &b"+OK\r\n"[..],
            b"$-1\r\n",
            b"_\r\n",
            b"*0\r\n",
            b":0\r\n",
            b":1\r\n",
            b":00017\r\n",
            b":999999999999999999\r\n",
        ];
        for reply in replies {
            let more = [reply, b":7\r\n"].concat();
            let (value, length) = read(&more).unwrap();
            assert_eq!(value, redis::parse_redis_value(reply).unwrap());
            assert_eq!(scan(&more), Ok(Scanned::Reply(length)));
            for end in 0..reply.len() {
                assert_eq!(read(&reply[..end]), None, "{:?}", reply[..end].escape_ascii());
            }
        }
    }

    #[test]
    fn everything_else_is_left_to_the_parser() {
        let others = [
            &b"+PONG\r\n"[..],
            b":-1\r\n",
            b":+1\r\n",
            b":\r\n",
            b":1a\r\n",
            b":9223372036854775807\r\n",
            b"$1\r\na\r\n",
            b"*1\r\n:1\r\n",
            b"-ERR\r\n",
            b">1\r\n:1\r\n",
        ];
        for other in others {
            assert_eq!(read(other), None, "{:?}", other.escape_ascii());
        }
    }
}
