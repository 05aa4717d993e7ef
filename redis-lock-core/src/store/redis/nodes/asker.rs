//! Asks nodes about themselves and the other nodes, over connections that are kept for that.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use std::{io, thread};

use futures_util::future::{FutureExt, Shared};
use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::{Cmd, ConnectionAddr, ConnectionInfo, RedisError, Value};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};

use crate::domain::fault::{Fault, FaultClass};
use crate::store::redis::address::{Address, AddressMap};
use crate::store::redis::driver::Driver;
use crate::store::redis::{Terms, connect, decode};
use crate::sync::NonPoisonMutex;

/// A node or a sentinel that can be asked.
#[derive(Clone)]
pub(super) enum Target {
    /// Given by the user as a URL.
    Seed(Box<redis::Client>),
    /// Announced by another node.
    Node(Address),
}

impl Target {
    pub(super) fn address(&self) -> Option<Address> {
        match self {
            Self::Seed(client) => address_of(client),
            Self::Node(address) => Some(address.clone()),
        }
    }

    pub(super) async fn client(&self, access: &NodeAccess) -> Result<redis::Client, RedisError> {
        match self {
            Self::Seed(client) => Ok((**client).clone()),
            Self::Node(address) => access.client(address).await,
        }
    }
}

/// Connections to nodes that were asked before.
pub(super) struct Asker {
    pub(super) access: NodeAccess,
    pub(super) terms: Terms,
    connections: NonPoisonMutex<BTreeMap<Address, Driver>>,
    unreached: NonPoisonMutex<BTreeMap<Address, Unreached>>,
}

/// A node that could not be connected to the last time.
struct Unreached {
    /// Before this time it is not tried again.
    until: Instant,
    pause: Duration,
    fault: Fault,
}

/// While the map is uncertain it is read several times a second, and a dead node must not be
/// connected to as often. This long at first, and twice as long each time.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

impl Asker {
    pub(super) fn new(access: NodeAccess, terms: Terms) -> Self {
        Self {
            access,
            terms,
            connections: NonPoisonMutex::default(),
            unreached: NonPoisonMutex::default(),
        }
    }

    /// Sends several commands to one node. Error replies are among the answers.
    pub(super) async fn ask(
        &self,
        target: &Target,
        commands: &[Cmd],
        limit: Duration,
    ) -> Result<Vec<Value>, Fault> {
        let asking = timeout(limit, self.ask_without_limit(target, commands));
        let answers = asking.await.unwrap_or_else(|_| Err(silent(limit)));
        if let (Err(fault), Some(address)) = (&answers, target.address()) {
            self.connections.lock().remove(&address);
            if let Some(unreached) = self.unreached.lock().get_mut(&address) {
                unreached.fault = fault.clone();
            }
        }
        answers.map_err(|fault| match target.address() {
            Some(address) => Fault { what: format!("{address}: {}", fault.what), ..fault },
            None => fault,
        })
    }

    async fn ask_without_limit(
        &self,
        target: &Target,
        commands: &[Cmd],
    ) -> Result<Vec<Value>, Fault> {
        let address = target.address();
        let kept =
            address.as_ref().and_then(|address| self.connections.lock().get(address).cloned());
        if let Some(mut kept) = kept
            && let Ok(answers) = kept.ask_all(commands.iter().cloned()).await
        {
            return Ok(answers);
        }
        self.begin_connect(address.as_ref())?;
        let client = target.client(&self.access).await.map_err(decode::unreachable)?;
        let mut made = connect::driver(&client, &self.terms, connect::config()).await?;
        let answers = made.ask_all(commands.iter().cloned()).await;
        let answers = answers.map_err(decode::unreachable)?;
        if let Some(address) = address {
            self.unreached.lock().remove(&address);
            self.connections.lock().insert(address, made);
        }
        Ok(answers)
    }

    /// Whether it is time to try this address. It counts as out of reach until it has answered, also
    /// where no caller waits for that.
    fn begin_connect(&self, address: Option<&Address>) -> Result<(), Fault> {
        let Some(address) = address else { return Ok(()) };
        let (mut unreached, now) = (self.unreached.lock(), Instant::now());
        let (pause, fault) = match unreached.get(address) {
            Some(before) if now < before.until => return Err(before.fault.clone()),
            Some(before) => ((before.pause * 2).min(LONGEST_PAUSE), before.fault.clone()),
            None => (FIRST_PAUSE, Fault::new(FaultClass::Refused, "no answer yet")),
        };
        unreached.insert(address.clone(), Unreached { until: now + pause, pause, fault });
        Ok(())
    }

    /// Closes the connections to all other addresses.
    pub(super) fn keep(&self, wanted: impl Fn(&Address) -> bool) {
        self.connections.lock().retain(|address, _| wanted(address));
        self.unreached.lock().retain(|address, _| wanted(address));
    }
}

fn silent(limit: Duration) -> Fault {
    Fault::new(FaultClass::Refused, format!("no answer within {limit:?}"))
}

/// How long to wait for the others when enough have answered.
const GRACE: Duration = Duration::from_millis(100);

/// The answers and faults of several nodes that are asked at once. After `enough` answers, the other nodes
/// have little time left.
pub(super) async fn gather<T>(
    asking: impl Iterator<Item = impl Future<Output = Result<T, Fault>>>,
    limit: Duration,
    enough: impl Fn(usize) -> bool,
) -> (Vec<T>, Vec<Fault>) {
    let mut asking: FuturesUnordered<_> = asking.collect();
    let (mut answers, mut faults) = (Vec::new(), Vec::new());
    let mut end = Instant::now() + limit;
    while let Ok(Some(answer)) = timeout_at(end, asking.next()).await {
        match answer {
            Ok(answer) => answers.push(answer),
            Err(fault) => faults.push(fault),
        }
        if enough(answers.len()) {
            end = end.min(Instant::now() + GRACE);
        }
    }
    (answers, faults)
}

/// The most informative of several failures: a wrong password says more than an unreachable node.
/// It is permanent only when all failures are.
pub(super) fn worst(mut faults: Vec<Fault>, nobody: &str) -> Fault {
    let all = faults.iter().all(|fault| fault.class == FaultClass::Permanent);
    let first = faults.iter().position(|fault| fault.class == FaultClass::Permanent);
    match faults.is_empty() {
        true => Fault::new(FaultClass::Refused, nobody),
        false => {
            let fault = faults.swap_remove(first.unwrap_or(0));
            let class = if all { FaultClass::Permanent } else { FaultClass::Refused };
            Fault { class, ..fault }
        }
    }
}

/// The credentials and the TLS of the seeds, which all nodes have in common.
#[derive(Clone)]
pub(crate) struct NodeAccess {
    model: ConnectionInfo,
    map: Option<Arc<AddressMapper>>,
}

impl NodeAccess {
    /// Uses the settings of `model` for every address.
    pub(crate) fn like(model: &redis::Client, map: Option<AddressMap>) -> Self {
        let map = map.map(|map| Arc::new(AddressMapper::new(map)));
        Self { model: model.get_connection_info().clone(), map }
    }

    /// A client of the node that announces this address.
    pub(in crate::store::redis) async fn client(
        &self,
        announced: &Address,
    ) -> Result<redis::Client, RedisError> {
        let Address { host, port } = match &self.map {
            Some(map) => map.reached(announced).await?,
            None => announced.clone(),
        };
        let addr = match self.model.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => ConnectionAddr::TcpTls {
                host,
                port,
                insecure: *insecure,
                tls_params: tls_params.clone(),
            },
            _ => ConnectionAddr::Tcp(host, port),
        };
        redis::Client::open(self.model.clone().set_addr(addr))
    }
}

/// The address that a client connects to; `None` for a unix socket.
pub(super) fn address_of(client: &redis::Client) -> Option<Address> {
    match client.get_connection_info().addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            Some(Address::new(host.as_str(), *port))
        }
        _ => None,
    }
}

/// Calls the function on a thread for each address: it may block, and must not keep the engine
/// from renewing leases.
pub(super) struct AddressMapper {
    map: AddressMap,
    calls: Arc<Calls>,
}

/// The calls that have not returned: at most one for each address.
type Calls = NonPoisonMutex<BTreeMap<Address, Shared<oneshot::Receiver<Address>>>>;

impl AddressMapper {
    pub(super) fn new(map: AddressMap) -> Self {
        Self { map, calls: Arc::default() }
    }

    /// The address at which the node can be reached that announces this one.
    pub(super) async fn reached(&self, announced: &Address) -> io::Result<Address> {
        let call = self.call(announced)?;
        call.await.map_err(|_| io::Error::other("the address_map of this program panicked"))
    }

    fn call(&self, announced: &Address) -> io::Result<Shared<oneshot::Receiver<Address>>> {
        let mut calls = self.calls.lock();
        if let Some(call) = calls.get(announced) {
            return Ok(call.clone());
        }
        let (result, call) = oneshot::channel();
        let call = call.shared();
        let (map, running, address) =
            (Arc::clone(&self.map), Arc::clone(&self.calls), announced.clone());
        thread::Builder::new().name("redis-locks-map".into()).spawn(move || {
            let mapped = catch_unwind(AssertUnwindSafe(|| map(&address.host, address.port)));
            running.lock().remove(&address);
            if let Ok((host, port)) = mapped {
                // The caller may have given up.
                let _ = result.send(Address { host, port });
            }
        })?;
        calls.insert(announced.clone(), call.clone());
        Ok(call)
    }
}
