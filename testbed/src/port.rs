use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::net::{TcpListener, UdpSocket};
use std::sync::{Mutex, PoisonError};

/// Systems hand out client ports from 32768 (Linux) or 49152 up. A server that is down must not
/// have its port taken by a client meanwhile, least of all by one that is trying to connect to
/// it (which then, on loopback, connects to itself): so listeners get ports below.
const PORTS: std::ops::Range<u64> = 15_000..32_000;

/// How far above its port a node of a cluster listens for others, before 7.0.
const BUS: u16 = 10_000;

/// A TCP port on loopback that no other `Port` has, in any process, for as long as this one lives.
///
/// A server that is down must find its port free when it starts again. So the UDP port of the same
/// number is bound all the time: nothing here uses UDP, and the system frees it when a process ends.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    _mark: UdpSocket,
}

impl Port {
    /// One that nothing listens on.
    pub(crate) fn free() -> Self {
        Self::random(Self::take)
    }

    /// The port of a server whose bus port cannot be chosen, and that bus port.
    pub(crate) fn free_with_bus() -> [Self; 2] {
        Self::random(|number| {
            let bus = number.checked_add(BUS).filter(|bus| u64::from(*bus) < PORTS.end)?;
            Some([Self::take(number)?, Self::take(bus)?])
        })
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    fn take(number: u16) -> Option<Self> {
        let mark = UdpSocket::bind(("127.0.0.1", number)).ok()?;
        TcpListener::bind(("127.0.0.1", number)).ok()?;
        Some(Self { number, _mark: mark })
    }

    fn random<T>(take: impl Fn(u16) -> Option<T>) -> T {
        (0..1000)
            .find_map(|_| {
                let random = RandomState::new().build_hasher().finish();
                let number = PORTS.start + random % (PORTS.end - PORTS.start);
                take(u16::try_from(number).expect("the range fits"))
            })
            .unwrap_or_else(|| panic!("no free port between {} and {}", PORTS.start, PORTS.end))
    }
}

/// A port on loopback that nothing listens on. No server or proxy of any test gets it before this
/// process ends.
pub fn free_port() -> u16 {
    static TAKEN: Mutex<Vec<Port>> = Mutex::new(Vec::new());
    let port = Port::free();
    let number = port.number();
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner).push(port);
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_taken_once_until_it_is_dropped() {
        let port = Port::free();
        let number = port.number();
        assert!(Port::take(number).is_none());
        drop(port);
        assert!(Port::take(number).is_some());
    }

    #[test]
    fn a_server_that_is_down_keeps_its_port() {
        let server = crate::Server::start();
        server.kill9();
        assert!(Port::take(server.port()).is_none());
        drop(TcpListener::bind(("127.0.0.1", server.port())).expect("it is down"));
        server.restart();
    }

    #[test]
    fn a_bus_port_is_taken_with_its_port() {
        let [port, bus] = Port::free_with_bus();
        assert_eq!(bus.number(), port.number() + BUS);
        assert!(Port::take(bus.number()).is_none());
    }

    #[test]
    fn a_port_where_something_listens_is_not_free() {
        let port = Port::free();
        let number = port.number();
        let _listener = TcpListener::bind(("127.0.0.1", number)).unwrap();
        drop(port);
        assert!(Port::take(number).is_none());
    }
}
