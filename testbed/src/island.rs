use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::net::Ipv4Addr;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::host::Host;
use crate::watchdog::Watchdog;

/// A machine of its own, as far as the network goes: a namespace, and a cable to it.
///
/// A cut drops packets in silence, as a dead switch does: no connection is refused or closed,
/// neither an existing nor a new one. Processes on it run on, and can be asked by
/// [`Server::run`](crate::Server::run).
///
/// Two routes lead to it, by two addresses at both ends, so that one client can be cut off while
/// others see no fault.
///
/// ```no_run
/// # fn test() {
/// let island = match testbed::Island::rise() {
///     Ok(island) => island,
///     Err(why) => testbed::skip!("{why}"),
/// };
/// let group = testbed::Sentinel::builder().island(&island).start();
/// island.cut();
/// # }
/// ```
#[derive(Debug)]
pub struct Island {
    namespace: String,
    /// The end of the cable that is with the tests.
    cable: String,
    net: Ipv4Addr,
    _watchdog: Watchdog,
}

/// Networks that are set apart for tests of network devices.
const NETS: u32 = 0xC612_0000;
const SIZE: u32 = 16;
const COUNT: u64 = 8_192;

/// Hardware addresses of the cable's ends: with these known, no machine has to ask for them.
const NEAR_END: &str = "02:00:00:00:00:01";
const FAR_END: &str = "02:00:00:00:00:02";

impl Island {
    /// Makes one.
    ///
    /// # Errors
    /// Why this machine, or this user, can't have one.
    pub fn rise() -> Result<Self, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("rl{}-{number}", std::process::id());
        let (namespace, cable) = (name.clone(), format!("{name}n"));
        let random = RandomState::new().build_hasher().finish() % COUNT;
        let net = NETS + u32::try_from(random).unwrap_or(0) * SIZE;
        ip(&format!("netns add {namespace}"))?;
        let watchdog = Watchdog::over_island(&namespace, &cable);
        let island = Self { namespace, cable, net: net.into(), _watchdog: watchdog };
        island.lay_cable().map(|()| island)
    }

    fn lay_cable(&self) -> Result<(), String> {
        let Self { namespace, cable, .. } = self;
        let far = format!("{namespace}f");
        let (near_one, near_two) = (self.near(), self.second_near());
        let (far_one, far_two) = (self.address(), self.second_address());
        let peer = format!("peer name {far} address {FAR_END} netns {namespace}");
        ip(&format!("link add {cable} address {NEAR_END} type veth {peer}"))?;
        for address in [near_one, near_two] {
            ip(&format!("address add {address}/28 dev {cable}"))?;
        }
        ip(&format!("link set {cable} up"))?;
        for address in [far_one, far_two] {
            ip(&format!("-n {namespace} address add {address}/28 dev {far}"))?;
            ip(&format!("neighbour replace {address} lladdr {FAR_END} nud permanent dev {cable}"))?;
        }
        ip(&format!("-n {namespace} link set lo up"))?;
        ip(&format!("-n {namespace} link set {far} up"))?;
        for address in [near_one, near_two] {
            let known = format!("{address} lladdr {NEAR_END} nud permanent dev {far}");
            ip(&format!("-n {namespace} neighbour replace {known}"))?;
        }
        ip(&format!("route replace {far_two}/32 dev {cable} src {near_two}"))?;
        // By default, packets are dropped as well when no route leads back to their sender.
        self.take_everything(false)
    }

    /// Its address.
    pub fn address(&self) -> Ipv4Addr {
        self.numbered(2)
    }

    /// Its address on the second route.
    pub fn second_address(&self) -> Ipv4Addr {
        self.numbered(4)
    }

    /// The address of the tests, as seen from here.
    fn near(&self) -> Ipv4Addr {
        self.numbered(1)
    }

    fn second_near(&self) -> Ipv4Addr {
        self.numbered(3)
    }

    fn numbered(&self, number: u32) -> Ipv4Addr {
        (u32::from(self.net) + number).into()
    }

    /// Nothing gets through any more, on either route.
    pub fn cut(&self) {
        self.cut_first();
        self.block(self.second_near());
    }

    /// Nothing gets through on the first route, which all clients use that don't ask for the
    /// second.
    pub fn cut_first(&self) {
        self.take_everything(false).expect("the island stands");
        self.block(self.near());
    }

    /// Packets that are sent on the second route arrive, and nothing comes back.
    pub fn mute_second(&self) {
        self.take_everything(true).expect("the island stands");
        self.block(self.second_near());
    }

    /// Everything gets through again.
    pub fn heal(&self) {
        for address in [self.near(), self.second_near()] {
            // It may not have been cut.
            let _ = ip(&format!("-n {} route del blackhole {address}/32", self.namespace));
        }
    }

    fn block(&self, address: Ipv4Addr) {
        let route = format!("-n {} route replace blackhole {address}/32", self.namespace);
        ip(&route).expect("the island stands");
    }

    /// Sets whether packets are accepted whose sender can't be answered.
    fn take_everything(&self, everything: bool) -> Result<(), String> {
        let value = u8::from(!everything);
        let write = format!("echo {value} > /proc/sys/net/ipv4/conf/all/rp_filter");
        run(Command::new("ip").args(["netns", "exec", &self.namespace, "sh", "-c", &write]))
    }

    /// For servers that run on it.
    pub(crate) fn host(&self) -> Host {
        Host::inside(&self.namespace, vec![self.address(), self.second_address()])
    }

    /// For servers that are with the tests and reach those on the island by the first route.
    pub(crate) fn near_host(&self) -> Host {
        Host::at(self.near())
    }
}

impl Drop for Island {
    fn drop(&mut self) {
        let _ = ip(&format!("link del {}", self.cable));
        let _ = ip(&format!("netns del {}", self.namespace));
    }
}

/// Runs `ip` with these words.
fn ip(words: &str) -> Result<(), String> {
    run(Command::new("ip").args(words.split_whitespace()))
}

fn run(command: &mut Command) -> Result<(), String> {
    let what = format!("{command:?}").replace('"', "");
    match command.output() {
        Ok(Output { status, .. }) if status.success() => Ok(()),
        Ok(Output { stderr, .. }) => {
            Err(format!("`{what}` is refused: {}", String::from_utf8_lossy(&stderr).trim()))
        }
        Err(error) => Err(format!("`{what}` can't be run: {error}")),
    }
}
