//! Addresses of nodes, as they announce themselves.

use std::fmt;
use std::sync::Arc;

use redis::Value;

use crate::store::wire::{NodeName, Redirect};

/// A host and a port, as a node or a sentinel announces them.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Address {
    pub(crate) fn new(host: impl Into<String>, port: u16) -> Self {
        Self { host: host.into(), port }
    }

    /// Parses `host:port`. Servers write IPv6 addresses without brackets, users write them with
    /// brackets.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        Some(Self::new(host, port.parse().ok()?))
    }

    /// Replaces the host by `asked`, the address of the node that answered, when the node does not
    /// know its own address and sent an empty host or `?`.
    pub(crate) fn seen_from(self, asked: &str) -> Self {
        match self.host.as_str() {
            "" | "?" => Self { host: asked.into(), ..self },
            _ => self,
        }
    }

    pub(crate) fn name(&self) -> NodeName {
        self.to_string().into()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// The user's function from the address that a node announces to a reachable address.
pub(crate) type AddressMap = Arc<dyn Fn(&str, u16) -> (String, u16) + Send + Sync>;

/// The redirect that a reply of the node `asked` contains, if any.
pub(super) fn redirect(value: &Value, asked: &NodeName) -> Option<Redirect> {
    let Value::ServerError(error) = value else { return None };
    redirect_in(error.code(), error.details()?, asked)
}

/// The same from an error's code and the rest of its text.
pub(super) fn redirect_in(code: &str, detail: &str, asked: &NodeName) -> Option<Redirect> {
    let (slot, to) = detail.split_once(' ')?;
    let asked = Address::parse(asked)?;
    let to = Address::parse(to)?.seen_from(&asked.host).name();
    match code {
        "MOVED" => Some(Redirect::Moved { slot: slot.parse().ok()?, to }),
        "ASK" => Some(Redirect::Ask { to }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redirected(reply: &str) -> Option<Redirect> {
        let value = redis::parse_redis_value(reply.as_bytes()).unwrap();
        redirect(&value, &"[::1]:7000".into())
    }

    #[test]
    fn redirects_are_read_in_every_form_that_servers_give_them() {
        let moved = |to: &str| Some(Redirect::Moved { slot: 3999, to: to.into() });
        assert_eq!(redirected("-MOVED 3999 127.0.0.1:6381\r\n"), moved("127.0.0.1:6381"));
        assert_eq!(redirected("-MOVED 3999 fe80::1:6381\r\n"), moved("[fe80::1]:6381"));
        assert_eq!(redirected("-MOVED 3999 node.example:6381\r\n"), moved("node.example:6381"));
        for unknown in ["-MOVED 3999 :6381\r\n", "-MOVED 3999 ?:6381\r\n"] {
            assert_eq!(redirected(unknown), moved("[::1]:6381"), "{unknown}");
        }
        let ask = Redirect::Ask { to: "127.0.0.1:6381".into() };
        assert_eq!(redirected("-ASK 3999 127.0.0.1:6381\r\n"), Some(ask));
        for other in
            ["-MOVED\r\n", "-MOVED 3999\r\n", "-MOVED x h:1\r\n", "-ERR 1 h:1\r\n", "+OK\r\n"]
        {
            assert_eq!(redirected(other), None, "{other}");
        }
    }

    #[test]
    fn an_address_is_shown_as_it_is_read() {
        for text in ["host:1", "[::1]:7000", "10.0.0.1:65535"] {
            assert_eq!(Address::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Address::parse("::1:7000"), Some(Address::new("::1", 7000)));
        for text in ["", "host", "host:", "host:70000"] {
            assert_eq!(Address::parse(text), None, "{text}");
        }
    }
}
