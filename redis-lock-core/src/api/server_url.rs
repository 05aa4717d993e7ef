//! The URLs of servers.

use std::time::Duration;

use redis::{ConnectionAddr, IntoConnectionInfo};

use crate::ConfigError;
use crate::domain::config_error::REJOIN_ALONE;
use crate::domain::status::Topology;
use crate::store::redis::said_by_driver;

/// The most characters of the driver's words about a URL.
const MOST_PROBLEM: usize = 200;

/// The port of sentinels, where an address names none.
const SENTINEL_PORT: u16 = 26379;

/// Whether TLS was built in.
const HAS_TLS: bool = cfg!(feature = "rustls");

/// The servers that were named, and how they belong together.
#[derive(Clone, Debug)]
pub(crate) struct Servers {
    pub(crate) topology: Topology,
    /// One, all nodes of a quorum, or some of a cluster's nodes or of the sentinels. None in memory.
    pub(crate) clients: Vec<redis::Client>,
    /// What the sentinels call the primary, whose credentials and database their URLs have.
    pub(crate) primary: String,
    /// The sentinels with their credentials, if they have any.
    pub(super) sentinels: Vec<redis::Client>,
    /// How long a node of a quorum does not vote after its start, if the URL says it.
    pub(super) rejoin: Option<Duration>,
}

impl Servers {
    pub(crate) fn of(topology: Topology, clients: Vec<redis::Client>) -> Self {
        let (primary, sentinels, rejoin) = (String::new(), Vec::new(), None);
        Self { topology, clients, primary, sentinels, rejoin }
    }

    pub(crate) fn one(client: redis::Client) -> Self {
        Self::of(Topology::Single, vec![client])
    }

    pub(crate) fn named_by(sentinels: Vec<redis::Client>, primary: String) -> Self {
        Self { primary, ..Self::of(Topology::Sentinel, sentinels) }
    }

    pub(crate) fn in_memory() -> Self {
        Self::of(Topology::Memory, Vec::new())
    }
}

pub(crate) fn owned<S: AsRef<str>>(urls: impl IntoIterator<Item = S>) -> Vec<String> {
    urls.into_iter().map(|url| url.as_ref().to_owned()).collect()
}

/// Reads a URL: of one server, or of several, as in `redis-cluster://a:7000,b:7000`,
/// `redis-quorum://a,b,c` and `redis-sentinel://s1:26379,s2/mymaster`.
pub(crate) fn read(url: &str) -> Result<Servers, ConfigError> {
    let parts = Parts::of(url)?;
    for (ending, topology) in [("-cluster", Topology::Cluster), ("-quorum", Topology::Quorum)] {
        if let Some(scheme) = parts.scheme.strip_suffix(ending) {
            let nodes = Servers::of(topology, each(scheme, &parts, parts.path, None)?);
            return Ok(Servers { rejoin: rejoin(parts.query)?, ..nodes });
        }
    }
    let Some(scheme) = parts.scheme.strip_suffix("-sentinel") else {
        let scheme = simple(parts.scheme, HAS_TLS)?;
        if scheme == "redis+unix" {
            check_parameters(parts.query, &["db", "user", "pass", "protocol"])?;
            return client(&format!("{scheme}://{}", parts.rest)).map(Servers::one);
        }
        let Parts { authority, path, .. } = parts;
        if parts.hosts.contains(',') {
            return Err(bad(
                "it names several servers; begin it with redis-cluster, redis-sentinel or redis-quorum://",
            ));
        }
        return one(&format!("{scheme}://{authority}/{path}"), &parts).map(Servers::one);
    };
    let (name, db) = parts.path.split_once('/').unwrap_or((parts.path, ""));
    if name.is_empty() {
        return Err(ConfigError::NoPrimaryName);
    }
    let sentinels = each(scheme, &parts, db, Some(SENTINEL_PORT))?;
    Ok(Servers::named_by(sentinels, name.into()))
}

/// Reads the URLs of several nodes of a cluster.
pub(crate) fn read_cluster(urls: &[String]) -> Result<Servers, ConfigError> {
    let cluster = read_nodes(urls, Topology::Cluster)?;
    check_seeds(&cluster.clients)?;
    Ok(cluster)
}

/// Reads the URLs of the nodes of a quorum, which may differ in all.
pub(crate) fn read_quorum(urls: &[String]) -> Result<Servers, ConfigError> {
    read_nodes(urls, Topology::Quorum)
}

fn read_nodes(urls: &[String], topology: Topology) -> Result<Servers, ConfigError> {
    let (mut nodes, mut rejoin) = (Vec::new(), None);
    for url in urls {
        let named = read(url)?;
        rejoin = rejoin.max(named.rejoin);
        if ![Topology::Single, topology].contains(&named.topology) {
            return Err(no_seed(url));
        }
        nodes.extend(named.clients);
    }
    Ok(Servers { rejoin, ..Servers::of(topology, nodes) })
}

/// Reads the URLs of several sentinels, and what they call the primary.
pub(crate) fn read_sentinels(urls: &[String], primary: String) -> Result<Servers, ConfigError> {
    let mut sentinels = Vec::new();
    for url in urls {
        let parts = Parts::of(url)?;
        let scheme = parts.scheme;
        if scheme.contains('-') {
            return Err(no_seed(url));
        }
        sentinels.extend(each(scheme, &parts, parts.path, Some(SENTINEL_PORT))?);
    }
    check_seeds(&sentinels)?;
    Ok(Servers::named_by(sentinels, primary))
}

/// What a URL consists of.
struct Parts<'a> {
    scheme: &'a str,
    rest: &'a str,
    authority: &'a str,
    credentials: &'a str,
    hosts: &'a str,
    path: &'a str,
    query: &'a str,
    /// What follows a `#`.
    fragment: Option<&'a str>,
}

impl<'a> Parts<'a> {
    fn of(url: &'a str) -> Result<Self, ConfigError> {
        let (scheme, rest) = url.split_once("://").ok_or(ConfigError::NoScheme)?;
        let (before, fragment) = match rest.split_once('#') {
            Some((before, fragment)) => (before, Some(fragment)),
            None => (rest, None),
        };
        if fragment.is_some_and(|it| it != "insecure" || !is_tls(scheme)) {
            return Err(bad("nothing can follow a `#` (in a password it is written %23)"));
        }
        let (place, query) = before.split_once('?').unwrap_or((before, ""));
        let (authority, path) = place.split_once('/').unwrap_or((place, ""));
        let (credentials, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        Ok(Self { scheme, rest, authority, credentials, hosts, path, query, fragment })
    }
}

/// A client for each of the hosts, which have all else in common.
fn each(
    scheme: &str,
    parts: &Parts<'_>,
    db: &str,
    port: Option<u16>,
) -> Result<Vec<redis::Client>, ConfigError> {
    let scheme = simple(scheme, HAS_TLS)?;
    let credentials = match parts.credentials {
        "" => String::new(),
        credentials => format!("{credentials}@"),
    };
    let each = |host: &str| {
        let port =
            port.filter(|_| !has_port(host)).map_or_else(String::new, |port| format!(":{port}"));
        one(&format!("{scheme}://{credentials}{host}{port}/{db}"), parts)
    };
    parts.hosts.split(',').map(each).collect()
}

/// A client for this URL, with the parameters of another one. The driver ignores those that it does
/// not know, and `db` among them.
fn one(url: &str, parts: &Parts<'_>) -> Result<redis::Client, ConfigError> {
    let known: &[_] = match parts.scheme.ends_with("-quorum") {
        true => &["db", "protocol", "rejoin"],
        false => &["db", "protocol"],
    };
    check_parameters(parts.query, known)?;
    let query = if parts.query.is_empty() { String::new() } else { format!("?{}", parts.query) };
    let fragment = parts.fragment.map_or_else(String::new, |fragment| format!("#{fragment}"));
    let named = client(&format!("{url}{query}{fragment}"))?;
    let Some((_, db)) = parameters(parts.query).find(|(name, _)| *name == "db") else {
        return Ok(named);
    };
    let Ok(db) = db.parse::<i64>() else { return Err(bad("`db` is no number")) };
    let info = named.get_connection_info().clone();
    if ![0, db].contains(&info.redis_settings().db()) {
        return Err(bad("it names two databases, one after the last slash and one as `db`"));
    }
    let settings = info.redis_settings().clone().set_db(db);
    redis::Client::open(info.set_redis_settings(settings)).map_err(|error| bad(&problem(&error)))
}

fn parameters(query: &str) -> impl Iterator<Item = (&str, &str)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

/// Refuses parameters that would be ignored.
fn check_parameters(query: &str, known: &[&str]) -> Result<(), ConfigError> {
    let mut seen = Vec::new();
    for (name, _) in parameters(query) {
        if name == "rejoin" && !known.contains(&name) {
            return Err(REJOIN_ALONE);
        }
        if !known.contains(&name) {
            let known = known.join("`, `");
            return Err(bad(&format!("the parameter {name:?} is unknown; there are `{known}`")));
        }
        if seen.contains(&name) {
            return Err(bad(&format!("the parameter `{name}` is there twice")));
        }
        seen.push(name);
    }
    Ok(())
}

/// The `rejoin` of a quorum, as in `10m` or `1m30s`.
fn rejoin(query: &str) -> Result<Option<Duration>, ConfigError> {
    let Some((_, text)) = parameters(query).find(|(name, _)| *name == "rejoin") else {
        return Ok(None);
    };
    let read = time(text).ok_or_else(|| bad("`rejoin` is a time such as 90s, 10m or 1h30m"))?;
    Ok(Some(read))
}

fn time(text: &str) -> Option<Duration> {
    let (mut total, mut rest) = (0_u64, text);
    while !rest.is_empty() || text.is_empty() {
        let (number, after) = rest.split_at(rest.find(|it: char| !it.is_ascii_digit())?);
        let end = after.find(|it: char| it.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let units = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
        let (_, millis) = units.into_iter().find(|(name, _)| *name == unit)?;
        total = total.checked_add(number.parse::<u64>().ok()?.checked_mul(millis)?)?;
        rest = after;
    }
    Some(Duration::from_millis(total))
}

fn bad(problem: &str) -> ConfigError {
    ConfigError::BadUrl { problem: problem.to_owned() }
}

fn is_tls(scheme: &str) -> bool {
    ["rediss", "valkeys"].iter().any(|tls| scheme.split('-').next() == Some(*tls))
}

fn has_port(host: &str) -> bool {
    host.rsplit(']').next().is_some_and(|rest| rest.contains(':'))
}

/// The scheme as the driver knows it.
fn simple(scheme: &str, has_tls: bool) -> Result<&'static str, ConfigError> {
    match scheme {
        "redis" | "valkey" => Ok("redis"),
        "rediss" | "valkeys" if has_tls => Ok("rediss"),
        "rediss" | "valkeys" => Err(ConfigError::NoTls),
        "redis+unix" | "valkey+unix" | "unix" => Ok("redis+unix"),
        _ => Err(ConfigError::UnknownScheme { scheme: scheme.to_owned() }),
    }
}

fn client(url: &str) -> Result<redis::Client, ConfigError> {
    let opened = url.into_connection_info().and_then(redis::Client::open);
    opened.map_err(|error| bad(&problem(&error)))
}

/// What the driver finds wrong with a URL.
pub(crate) fn problem(error: &redis::RedisError) -> String {
    said_by_driver(error, MOST_PROBLEM)
}

fn no_seed(url: &str) -> ConfigError {
    let scheme = url.split("://").next().unwrap_or_default();
    let problem = format!("`{scheme}` names several servers where one of several is expected");
    ConfigError::BadUrl { problem }
}

/// Checks that the URLs of all seeds have the same settings.
fn check_seeds(seeds: &[redis::Client]) -> Result<(), ConfigError> {
    let Some(first) = seeds.first() else { return Err(ConfigError::NoSeeds) };
    let way = |client: &redis::Client| {
        let info = client.get_connection_info();
        let settings = info.redis_settings();
        let is_tls = matches!(info.addr(), ConnectionAddr::TcpTls { .. });
        let user = settings.username().map(ToOwned::to_owned);
        (is_tls, user, settings.password().map(ToOwned::to_owned), settings.db())
    };
    if seeds.iter().any(|seed| matches!(seed.get_connection_info().addr(), ConnectionAddr::Unix(_)))
    {
        let problem = "a unix socket leads to one server alone".into();
        return Err(ConfigError::BadUrl { problem });
    }
    match seeds.iter().all(|seed| way(seed) == way(first)) {
        true => Ok(()),
        false => Err(ConfigError::SeedsDiffer),
    }
}

pub(crate) fn database(client: &redis::Client) -> i64 {
    client.get_connection_info().redis_settings().db()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(clients: &[redis::Client]) -> Vec<String> {
        let show = |client: &redis::Client| {
            let info = client.get_connection_info();
            let settings = info.redis_settings();
            let user = settings.username().unwrap_or_default();
            format!("{user}@{}/{}", info.addr(), settings.db())
        };
        clients.iter().map(show).collect()
    }

    #[test]
    fn a_url_with_tls_names_the_feature_where_it_is_off() {
        for scheme in ["rediss", "valkeys"] {
            assert_eq!(simple(scheme, true), Ok("rediss"));
            let error = simple(scheme, false).unwrap_err();
            assert_eq!(error, ConfigError::NoTls);
            assert!(error.to_string().contains("features = [\"rustls\"]"), "{error}");
        }
    }

    #[test]
    fn several_nodes_fit_into_one_url() {
        let cluster = read("redis-cluster://u:p@a:7000,[::1]:7001,c").unwrap();
        assert_eq!(cluster.topology, Topology::Cluster);
        assert_eq!(shown(&cluster.clients), ["u@a:7000/0", "u@::1:7001/0", "u@c:6379/0"]);
        let url = "valkey-sentinel://u:p@s1:1,s2,[::1]/mymaster/2";
        let sentinels = read(url).unwrap();
        assert_eq!((sentinels.topology, &*sentinels.primary), (Topology::Sentinel, "mymaster"));
        assert_eq!(shown(&sentinels.clients), ["u@s1:1/2", "u@s2:26379/2", "u@::1:26379/2"]);
    }

    #[test]
    fn every_parameter_of_a_url_is_honoured_or_refused() {
        for url in [
            "redis://a?db=1",
            "valkey://a/?db=1",
            "redis://a/1?db=1",
            "redis://u:p@a:1/?protocol=3&db=1",
            "redis+unix:///tmp/s?db=1&user=u&pass=p",
            "redis-cluster://a,b?db=1",
            "redis-sentinel://a,b/main?db=1",
            "redis-sentinel://a,b/main/1",
        ] {
            for client in read(url).unwrap().clients {
                assert_eq!(database(&client), 1, "{url}");
            }
        }
        let resp3 = read("redis://a?protocol=resp3").unwrap();
        assert_eq!(resp3.topology, Topology::Single);
        let protocol = resp3.clients[0].get_connection_info().redis_settings().protocol();
        assert_eq!(protocol, redis::ProtocolVersion::RESP3);
        for url in [
            "redis://a?database=1",
            "redis://a?DB=1",
            "redis://a?db=x",
            "redis://a?db",
            "redis://a/2?db=1",
            "redis://a?db=1&db=2",
            "redis://a?protocol=4",
            "redis://a?user=u&pass=hush",
            "redis://a?timeout=hush",
            "redis://a#hush",
            "redis://a,b",
            "redis+unix:///tmp/s?timeout=1",
            "redis+unix:///tmp/s#hush",
            "redis-cluster://a,b?timeout=1",
            "redis-sentinel://a,b/main?sentinelPassword=hush",
            "redis-sentinel://a,b/main#hush",
            "redis-quorum://a,b,c?rejoin=",
            "redis-quorum://a,b,c?rejoin=10",
            "redis-quorum://a,b,c?rejoin=hush",
            "redis-quorum://a,b,c?rejoin=m",
            "redis-quorum://a,b,c?rejoin=1y",
            "redis-quorum://a,b,c?rejoin=99999999999999999d",
            "redis-quorum://a,b,c?rejoin=1m&rejoin=1m",
        ] {
            let error = read(url).unwrap_err();
            assert!(matches!(error, ConfigError::BadUrl { .. }), "{url}: {error:?}");
            assert!(!error.to_string().contains("hush"), "{error}");
        }
    }

    #[test]
    fn a_url_of_a_quorum_says_how_long_nodes_do_not_vote() {
        let rejoin = |url| read(url).map(|servers| servers.rejoin);
        let secs = |secs| Ok(Some(Duration::from_secs(secs)));
        assert_eq!(rejoin("redis-quorum://a,b,c"), Ok(None));
        assert_eq!(rejoin("redis-quorum://a,b,c?rejoin=10m"), secs(600));
        assert_eq!(rejoin("valkey-quorum://u:p@a,b,c/1?rejoin=1h30m0s&protocol=3"), secs(5_400));
        assert_eq!(rejoin("redis-quorum://a,b,c?rejoin=0s"), secs(0));
        let parts = ["redis-quorum://a?rejoin=90s", "redis://b", "redis-quorum://c?rejoin=2m"];
        assert_eq!(
            read_quorum(&parts.map(Into::into)).unwrap().rejoin,
            Some(Duration::from_secs(120))
        );
        for url in
            ["redis://a?rejoin=1m", "redis-cluster://a?rejoin=1m", "redis+unix:///a?rejoin=1m"]
        {
            assert_eq!(rejoin(url), Err(REJOIN_ALONE), "{url}");
        }
    }

    #[test]
    fn what_cannot_be_several_nodes_is_refused() {
        let cluster = |urls: &[&str]| {
            let urls: Vec<_> = urls.iter().map(|url| (*url).to_owned()).collect();
            read_cluster(&urls).unwrap_err()
        };
        assert_eq!(cluster(&[]), ConfigError::NoSeeds);
        assert_eq!(cluster(&["redis://a", "redis://u:p@b"]), ConfigError::SeedsDiffer);
        for urls in
            [&["redis+unix:///tmp/s"] as &[&str], &["redis-sentinel://a/m"], &["redis-cluster://"]]
        {
            assert!(matches!(cluster(urls), ConfigError::BadUrl { .. }), "{urls:?}");
        }
        assert_eq!(read("redis-sentinel://a:1").unwrap_err(), ConfigError::NoPrimaryName);
        let unknown = read("http-cluster://a:1").unwrap_err();
        assert!(matches!(unknown, ConfigError::UnknownScheme { .. }), "{unknown}");
    }
}
