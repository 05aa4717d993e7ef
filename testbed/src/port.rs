use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::net::TcpListener;

/// Systems hand out client ports from 32768 (Linux) or 49152 up. A server that is down must not
/// have its port taken by a client meanwhile, least of all by one that is trying to connect to
/// it (which then, on loopback, connects to itself): so listeners get ports below.
const PORTS: std::ops::Range<u64> = 15_000..32_000;

/// How far above its port a node of a cluster listens for others, before 7.0.
const BUS: u16 = 10_000;

/// A port on loopback that nobody listens on at this moment.
pub fn free_port() -> u16 {
    random_port(is_free)
}

/// A port for a server whose bus port cannot be chosen: both are free.
pub(crate) fn free_port_for_old_node() -> u16 {
    random_port(|port| {
        let bus = port + BUS;
        u64::from(bus) < PORTS.end && is_free(port) && is_free(bus)
    })
}

fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}

fn random_port(fits: impl Fn(u16) -> bool) -> u16 {
    for _ in 0..1000 {
        let random = RandomState::new().build_hasher().finish();
        let port = PORTS.start + random % (PORTS.end - PORTS.start);
        let port = u16::try_from(port).expect("the range fits");
        if fits(port) {
            return port;
        }
    }
    panic!("no free port found between {} and {}", PORTS.start, PORTS.end);
}
