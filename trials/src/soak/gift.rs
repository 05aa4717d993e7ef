use std::fmt;

use redis_locks::Token;

use super::kind::Kind;

/// A hold that a worker gave away, for another worker to adopt. It stays the same hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gift {
    pub(crate) hold: u64,
    pub(crate) kind: Kind,
    pub(crate) keys: Vec<u64>,
    pub(crate) token: Token,
}

impl fmt::Display for Gift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<_> = self.keys.iter().map(u64::to_string).collect();
        write!(f, "{} {} {} {}", self.hold, self.kind, keys.join(","), self.token)
    }
}

impl Gift {
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut words = line.splitn(4, ' ');
        let hold = words.next()?.parse().ok()?;
        let kind = Kind::parse(words.next()?)?;
        let keys = words.next()?.split(',').map(|key| key.parse().ok()).collect::<Option<_>>()?;
        let token = words.next()?.parse().ok()?;
        Some(Self { hold, kind, keys, token })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_survives_the_way_to_another_worker() {
        let locks = redis_locks::Locks::in_memory();
        let token = locks.mutex("job").blocking_acquire().unwrap().detach();
        let gift = Gift { hold: u64::MAX, kind: Kind::All, keys: vec![1, 3], token };
        assert_eq!(Gift::parse(&gift.to_string()), Some(gift));
        assert_eq!(Gift::parse("1 m 2"), None);
    }
}
