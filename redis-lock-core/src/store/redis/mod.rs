//! The arbiter on one Redis or Valkey server.

mod address;
#[cfg(test)]
mod conformance;
mod connect;
mod conversation;
mod decode;
mod dialect;
mod driver;
mod encode;
#[cfg(fuzzing)]
#[path = "../../../../fuzz/core/made_answers.rs"]
pub(crate) mod fuzzed;
mod line;
mod listen;
pub(crate) mod login;
mod nodes;
mod probe;
pub(crate) mod provider;
#[cfg(test)]
mod redirect_tests;
mod replicated;
#[cfg(test)]
mod script_tests;
mod scripts;
mod side_link;
mod socket;
mod subscription;
#[cfg(test)]
mod test_direct;
mod transaction;
mod wait_round;
#[cfg(all(test, unix))]
mod wire_tests;

pub(crate) use address::{Address, AddressMap};
pub(crate) use decode::said_by_driver;
#[cfg(test)]
pub(crate) use encode::{declared, declared_by_script};
pub(crate) use nodes::{ClusterDirectory, NodeAccess, SentinelDirectory};
#[cfg(test)]
pub(crate) use nodes::{NamedPrimary, NodeList, SentinelReport};
#[cfg(test)]
pub(crate) use transaction::{NextStep, Sequence, TransactionSteps};
#[cfg(test)]
pub(crate) use wait_round::verdict_by;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::time::timeout;

use super::groups::ClusterMode;
use super::quorum::Seat;
use super::wire::NodeName;
use super::{
    BoxFuture, Command, Connected, Connector, Filled, Hints, LEAST_SILENCE, Pulled, TlsSettings,
    Wire,
};
use crate::domain::clock::Moment;
use crate::domain::fault::{Fault, FaultClass};
use crate::domain::names::{Names, beside_locks, tag_of};
use crate::domain::status::Scripting;
use crate::sync::NonPoisonMutex;
use conversation::Conversation;
use dialect::words;
use line::ServerLine;
use listen::Channel;
use login::CredentialSource;
use nodes::Member;
use probe::{AtomicBy, Found, probe};
use side_link::SideLink;
use transaction::{Pool, self_test};

/// What all connections of one manager have in common.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    namespace: Arc<str>,
    manager: Arc<str>,
    /// How long connecting may take.
    pub(crate) time_limit: Duration,
    /// Differs between managers, so that they don't act at the same time.
    spread: u8,
    /// How many replicas must have an acquisition or a renewal before it counts.
    pub(crate) replicas: u32,
    /// Whether scripts may be used.
    pub(crate) scripting: Scripting,
    /// The default lease, for warnings about fail-overs that take longer.
    pub(crate) ttl: Duration,
    /// How to speak TLS. Without it, the driver does it with what its clients bring along.
    pub(crate) tls: Option<TlsSettings>,
    /// What replaces the credentials of the clients.
    pub(crate) credentials: Option<Arc<CredentialSource>>,
}

impl Terms {
    pub(crate) fn new(namespace: &str, manager: &str, time_limit: Duration) -> Self {
        Self {
            namespace: namespace.into(),
            manager: manager.into(),
            time_limit: time_limit.max(LEAST_SILENCE),
            spread: crate::domain::env::unique().as_bytes()[15],
            replicas: 0,
            scripting: Scripting::Auto,
            ttl: Duration::MAX,
            tls: None,
            credentials: None,
        }
    }

    /// The same with other credentials than those of the clients.
    pub(crate) fn by(&self, credentials: Option<Arc<CredentialSource>>) -> Self {
        Self { credentials, ..self.clone() }
    }

    /// A fault of a server that wants other credentials passes, where there is a provider of them.
    fn judge(&self, fault: Fault) -> Fault {
        match &self.credentials {
            Some(source) => source.judge(fault),
            None => fault,
        }
    }

    /// A tenth more or less, differently for each manager.
    fn jittered(&self, pace: Duration) -> Duration {
        pace * 9 / 10 + pace * u32::from(self.spread) / (5 * 255)
    }

    /// Names a connection, so that an operator sees whose it is. It goes along with the first
    /// commands, and a server that refuses it is used without.
    fn name_connection(&self) -> redis::Cmd {
        words(["CLIENT", "SETNAME", &format!("redis-locks:{}", self.manager)])
    }

    /// The channel of this manager; the tag chooses its slot.
    fn channel(&self, tag: &str) -> Arc<str> {
        let Self { namespace, manager, .. } = self;
        let colon = if namespace.is_empty() { "" } else { ":" };
        format!("{namespace}{colon}{tag}~m:{manager}").into()
    }

    /// The names of something that belongs to no lock of the namespace.
    pub(crate) fn beside_locks(&self, what: &str) -> Names {
        Names::new(&self.namespace, beside_locks(&self.namespace, "", what))
    }

    /// A key that belongs to this manager and to no lock.
    fn side(&self, tag: &str, what: &str) -> String {
        beside_locks(&self.namespace, tag, &format!("{what}:{}", self.manager))
    }
}

/// Knows one server: its address, its credentials, and where it publishes this manager's grants.
#[derive(Clone)]
pub(crate) struct RedisConnector {
    way: Way,
    terms: Terms,
    channel: Channel,
    cluster: Arc<ClusterMode>,
    /// Whether scripts were used by the connection before.
    had_scripts: Arc<AtomicBool>,
    /// The version and the warnings that operators know.
    told: Arc<NonPoisonMutex<Vec<String>>>,
    /// The run id of the server for which `WATCH` was tested.
    watch_tested: Arc<NonPoisonMutex<Option<String>>>,
}

/// How a server is reached.
#[derive(Clone)]
enum Way {
    Alone(Box<redis::Client>),
    /// One of several nodes.
    Node(Box<NodeAccess>, Member),
    /// One of a quorum.
    Seat(Box<redis::Client>, Seat),
}

impl Way {
    async fn client(&self) -> Result<redis::Client, Fault> {
        match self {
            Self::Alone(client) | Self::Seat(client, _) => Ok(with_nodelay((**client).clone())),
            Self::Node(access, member) => {
                let address =
                    Address::parse(&member.name).ok_or_else(|| no_address(&member.name))?;
                access.client(&address).await.map(with_nodelay).map_err(decode::unreachable)
            }
        }
    }

    fn member(&self) -> Option<&Member> {
        match self {
            Self::Alone(_) | Self::Seat(..) => None,
            Self::Node(_, member) => Some(member),
        }
    }

    /// Tags of keys that this server has; an empty tag if it has all keys.
    fn own_tags(&self) -> Vec<String> {
        let slots = self.member().map(Member::some_slots).unwrap_or_default();
        match slots.is_empty() {
            true => vec![String::new()],
            false => slots.into_iter().map(tag_of).collect(),
        }
    }
}

fn no_address(name: &str) -> Fault {
    Fault::new(FaultClass::Refused, format!("a node announced `{name}`, which is no address"))
}

impl RedisConnector {
    pub(crate) fn new(client: redis::Client, terms: &Terms) -> Self {
        Self::by(Way::Alone(Box::new(client)), terms)
    }

    /// Connects to one node of a quorum.
    pub(crate) fn of_quorum(client: redis::Client, seat: Seat, terms: &Terms) -> Self {
        Self::by(Way::Seat(Box::new(client), seat), terms)
    }

    /// Connects to one node of several.
    fn of_node(access: NodeAccess, member: Member, terms: &Terms) -> Self {
        Self::by(Way::Node(Box::new(access), member), terms)
    }

    fn by(way: Way, terms: &Terms) -> Self {
        Self {
            way,
            terms: terms.clone(),
            channel: Channel::default(),
            cluster: Arc::default(),
            had_scripts: Arc::new(AtomicBool::new(true)),
            told: Arc::default(),
            watch_tested: Arc::default(),
        }
    }

    async fn connected(self) -> Result<Connected, Fault> {
        let client = self.way.client().await?;
        let mut introduced = connect::connect(&client, &self.terms, connect::config()).await?;
        let found = self.probed(&mut introduced.driver).await?;
        let line = introduced.into_line().await;
        let conversation = self.conversation(found.clone());
        self.with_transactions(Box::new(RedisWire { line, conversation }), found).await
    }

    /// Adds transactions to a connection that has no scripts.
    async fn with_transactions(&self, link: Connected, found: Found) -> Result<Connected, Fault> {
        let has_scripts = found.atomic_by == AtomicBy::Scripts;
        let had_scripts = self.had_scripts.swap(has_scripts, Ordering::Relaxed);
        if had_scripts != has_scripts && self.terms.scripting == Scripting::Auto {
            crate::observe::log::scripting_changed(has_scripts);
        }
        let run = found.run.clone();
        if has_scripts {
            return Ok(self.replicated(link, run));
        }
        let pool = Pool::new(self.way.client().await?, &self.terms);
        self.test_watch(&pool, run.as_deref()).await?;
        let (channel, node) = (self.channel.clone(), self.node());
        let connected = transaction::wire(link, pool, found, channel, node);
        Ok(self.replicated(connected, run))
    }

    /// Tests whether the server honours `WATCH`, once for each run of it: at each connect it would
    /// cost another six round trips.
    async fn test_watch(&self, pool: &Arc<Pool>, run: Option<&str>) -> Result<(), Fault> {
        let tested = || self.watch_tested.lock();
        if run.is_some() && tested().as_deref() == run {
            return Ok(());
        }
        let mut outcome = Ok(());
        for tag in self.way.own_tags() {
            outcome = self_test(pool, &self.terms.side(&tag, "probe")).await;
            // A slot may be being moved to another node; another slot may not.
            if !matches!(&outcome, Err(fault) if fault.class == FaultClass::Refused) {
                break;
            }
        }
        outcome?;
        *tested() = run.map(Into::into);
        Ok(())
    }

    /// Its name, where other nodes may have a key.
    fn node(&self) -> Option<NodeName> {
        let member = self.way.member().filter(|member| member.has_neighbours());
        member.map(|member| member.name.clone())
    }

    /// Makes answers wait for replicas, if the user asked for that.
    fn replicated(&self, connected: Connected, run: Option<String>) -> Connected {
        match self.terms.replicas {
            0 => connected,
            wanted => {
                let link = SideLink::new(self.way.clone(), self.terms.clone(), run);
                replicated::wrap(connected, wanted, link)
            }
        }
    }

    async fn probed(&self, driver: &mut MultiplexedConnection) -> Result<Found, Fault> {
        if let Some(member) = self.way.member() {
            member.check(driver).await?;
        }
        let found = probe(driver, &self.terms).await;
        let mut found = found.map_err(decode::unreachable)?;
        if let Some(member) = self.way.member() {
            member.set_version(&found.version);
            found.warnings.extend(member.warnings(driver, self.terms.ttl).await?);
        }
        if let Way::Seat(_, seat) = &self.way {
            if found.atomic_by != AtomicBy::Scripts {
                return Err(seat.denies_scripts());
            }
            let run = found.run.as_deref();
            seat.introduced(run, found.uptime, &found.version, Moment::now())?;
            found.warnings.extend(nodes::forgets(seat.votes_at_once(), driver).await?);
        }
        found.warnings.extend(nodes::few_replicas(found.replicas, self.terms.replicas));
        let seen = [std::slice::from_ref(&found.version), &found.warnings].concat();
        let is_first = {
            let mut told = self.told.lock();
            std::mem::replace(&mut *told, seen.clone()) != seen
        };
        crate::observe::log::connected(&found.version, &found.warnings, is_first);
        Ok(found)
    }

    fn conversation(&self, found: Found) -> Conversation {
        let (cluster, channel) = (Arc::clone(&self.cluster), self.channel.clone());
        Conversation::new(found, cluster, channel, self.way.member().cloned())
    }
}

impl Connector for RedisConnector {
    fn connect(&self) -> BoxFuture<'static, Result<Connected, Fault>> {
        let (connector, time_limit) = (self.clone(), self.terms.time_limit);
        Box::pin(async move {
            let member = connector.way.member().cloned();
            member.iter().for_each(Member::begin_connect);
            let connecting = timeout(time_limit, connector.connected()).await;
            let connected = connecting.unwrap_or_else(|_| Err(Fault::no_connection(time_limit)));
            member.iter().for_each(|member| member.end_connect(connected.as_ref().err()));
            connected
        })
    }

    fn listen(&self, hints: Hints) -> BoxFuture<'static, Fault> {
        let connector = self.clone();
        Box::pin(async move {
            let Self { way, terms, channel, .. } = connector;
            match way.client().await {
                Ok(client) => listen::listen(client, way.member(), &terms, channel, hints).await,
                Err(fault) => fault,
            }
        })
    }
}

/// One connection: what is said, and the line that it goes over.
struct RedisWire {
    line: ServerLine,
    conversation: Conversation,
}

impl RedisWire {
    #[cfg(test)]
    fn buffered(&self) -> usize {
        self.line.buffered()
    }

    fn judged(&self, done: Pulled) -> Pulled {
        match done {
            Pulled::Done(seq, Err(fault)) => Pulled::Done(seq, Err(self.line.judge(fault))),
            done => done,
        }
    }

    /// Reads the replies that have arrived.
    fn read_replies(&mut self, wants: &mut dyn FnMut(u64) -> bool) {
        loop {
            match self.line.next_reply() {
                Ok(Some(value)) => self.conversation.take_reply(value, wants, &mut self.line),
                Ok(None) => return,
                Err(fault) => return self.conversation.end(fault),
            }
        }
    }
}

impl Wire for RedisWire {
    fn push(&mut self, seq: u64, command: Command) {
        self.conversation.ask(seq, command, &mut self.line);
    }

    fn push_asking(&mut self, seq: u64, command: Command) {
        self.conversation.ask_asking(seq, command, &mut self.line);
    }

    fn flush(&mut self) -> io::Result<()> {
        self.conversation.send_bundles(&mut self.line);
        self.line.flush()
    }

    fn is_flushed(&self) -> bool {
        self.line.is_flushed() && !self.conversation.keeps_back()
    }

    fn fill(&mut self) -> io::Result<Filled> {
        self.line.fill()
    }

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let sending = !self.is_flushed();
        self.line.poll_ready(context, sending)
    }

    fn unwatch(&mut self) {
        self.line.unwatch();
    }

    fn pull(&mut self, wants: &mut dyn FnMut(u64) -> bool) -> Option<Pulled> {
        if let Some(done) = self.conversation.next_answer() {
            return Some(self.judged(done));
        }
        self.read_replies(wants);
        self.conversation.next_done().map(|done| self.judged(done))
    }
}

/// The client with settings that suit small, urgent commands.
fn with_nodelay(client: redis::Client) -> redis::Client {
    let info = client.get_connection_info().clone();
    let settings = info.tcp_settings().clone().set_nodelay(true);
    // The settings came from a client, so a client can be made of them.
    redis::Client::open(info.set_tcp_settings(settings)).unwrap_or(client)
}
