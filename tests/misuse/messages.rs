//! Error messages of a first set-up: the text, the class, and how soon they come.

use std::time::{Duration, Instant};

use redis_locks::{ConfigError, LockError, Locks, redis_lock};
use testbed::{Child, ChildIo, Server};

/// Errors that waiting can't change are returned within this time.
const AT_ONCE: Duration = Duration::from_secs(1);

/// Waits for ever, as by default.
#[redis_lock(key = "job:{id}", via = locks)]
async fn job(locks: &Locks, id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[track_caller]
fn assert_says(error: &dyn std::error::Error, parts: &[&str]) {
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "{text:?} does not say {part:?}");
    }
    assert!(!text.contains('\n'), "{text:?}");
}

/// An annotated call at this URL fails at once, for good, and says so.
async fn fails_at_once(url: &str, says: &[&str]) {
    let locks = Locks::open(url).unwrap();
    let start = Instant::now();
    let error = job(&locks, 7).await.unwrap_err();
    let took = start.elapsed();
    assert!(took < AT_ONCE, "{took:?}: {error}");
    let LockError::Backend { source, .. } = &error else { panic!("{error:?}") };
    assert!(!source.is_retryable(), "{error}");
    assert_eq!(error.key(), Some("job:7"));
    assert_says(&error, says);
    let chain = format!("{:#}", anyhow::Error::from(error));
    for part in says {
        assert_eq!(chain.matches(part).count(), 1, "{part:?} in {chain:?}");
    }
    for odd in ["\"", "Failed", "Error"] {
        assert!(!chain.contains(odd), "the driver's {odd:?} in {chain:?}");
    }
    let error = Locks::connect(url).await.unwrap_err();
    assert_says(&error, says);
    assert!(error.to_string().find("secret").is_none(), "{error}");
}

#[tokio::test]
async fn h5_a_password_that_is_wrong() {
    let server = Server::start();
    server.run::<()>("ACL SETUSER app on >secret ~* &* +@all");
    let port = server.port();
    let url = format!("redis://app:secret-not@127.0.0.1:{port}");
    fails_at_once(&url, &["check user and password in the URL"]).await;
    Locks::connect(format!("redis://app:secret@127.0.0.1:{port}")).await.unwrap();
}

#[tokio::test]
async fn h5_a_password_that_is_missing() {
    let server = Server::start();
    server.run::<()>("CONFIG SET requirepass secret");
    fails_at_once(&server.url(), &["redis://:password@host", "NOAUTH"]).await;
    fails_at_once(&format!("{}/1", server.url()), &["redis://:password@host"]).await;
    Locks::connect(format!("redis://:secret@127.0.0.1:{}", server.port())).await.unwrap();
}

#[tokio::test]
async fn h5_a_database_that_is_not_there() {
    let server = Server::start();
    let url = format!("redis://127.0.0.1:{}/4711", server.port());
    fails_at_once(&url, &["after the last slash"]).await;
}

#[tokio::test]
async fn h5_a_right_that_a_script_lacks() {
    let server = Server::start();
    server.run::<()>("ACL SETUSER app on >secret ~* &* +@all -pttl -pexpire -zadd");
    let url = format!("redis://app:secret@127.0.0.1:{}", server.port());
    let error = Locks::open(url).unwrap().read("job").acquire().await.unwrap_err();
    assert_says(&error, &["lock `job`", "NOPERM", "guide/protocol"]);
    let chain = format!("{:#}", anyhow::Error::from(error));
    assert_eq!(chain.matches("script").count(), 1, "no place in it, nor its hash: {chain:?}");
}

#[tokio::test]
async fn h5_an_address_of_another_service() {
    let web = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", web.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in web.incoming() {
            let _ = std::io::Write::write_all(&mut stream.unwrap(), b"HTTP/1.1 400 Bad\r\n\r\n");
        }
    });
    let locks = Locks::builder().url(url).outage(AT_ONCE).open().unwrap();
    let error = job(&locks, 7).await.unwrap_err();
    assert_says(&error, &["lock `job:7`", "does not speak the Redis protocol"]);
    let chain = format!("{:#}", anyhow::Error::from(error));
    assert!(!chain.contains("arse"), "how the driver read the answer: {chain:?}");
}

#[test]
fn h5_urls_of_other_sorts() {
    let refused = |url: &str| match Locks::open(url) {
        Err(LockError::InvalidConfig { cause, .. }) => cause,
        other => panic!("{url}: {other:?}"),
    };
    let cause = refused("http://localhost");
    assert_says(
        &cause,
        &[
            "`http`",
            "use redis, rediss, redis+unix, redis-cluster, redis-sentinel, redis-quorum, or valkey",
        ],
    );
    assert_eq!(refused("localhost:6379"), ConfigError::NoScheme);
    assert_says(&refused("localhost:6379"), &["redis://localhost:6379"]);
    assert_says(&refused("redis://localhost:port"), &["redis://user:password@host:port/db"]);
    assert_says(&refused("redis://a,b"), &["several servers", "redis-cluster", "redis-quorum://"]);
    if cfg!(feature = "rustls") {
        assert!(Locks::open("rediss://localhost").is_ok());
    } else {
        assert_eq!(refused("rediss://localhost"), ConfigError::NoTls);
        assert_says(&refused("rediss://localhost"), &["features = [\"rustls\"]"]);
    }
}

/// What is done in a process of its own.
fn elsewhere(role: &str, variables: &[(&str, &str)]) -> Vec<String> {
    let mut child = Child::spawn_with(role, |command| {
        command.env_remove("REDIS_URL").envs(variables.iter().copied());
    });
    child.expect("end");
    child.heard().iter().cloned().collect()
}

#[redis_lock(key = "job")]
fn annotated() -> Result<(), LockError> {
    Ok(())
}

/// Says the outcome, and how many milliseconds it took.
fn tell(io: &mut ChildIo, outcome: impl FnOnce() -> Result<(), LockError>) {
    let start = Instant::now();
    let outcome = outcome();
    let took = start.elapsed().as_millis();
    match outcome {
        Ok(()) => io.say(&format!("{took} fine")),
        Err(error) => io.say(&format!("{took} {error}")),
    }
}

pub(crate) fn unnamed(io: &mut ChildIo) {
    tell(io, annotated);
    tell(io, || Locks::in_memory().install());
    tell(io, annotated);
    io.say("end");
}

pub(crate) fn twice(io: &mut ChildIo) {
    tell(io, || Locks::in_memory().install());
    tell(io, || Locks::in_memory().install());
    io.say("end");
}

pub(crate) fn late(io: &mut ChildIo) {
    tell(io, annotated);
    tell(io, || Locks::in_memory().install());
    io.say("end");
}

#[track_caller]
fn assert_messages(messages: &[String], expected: &[&str]) {
    assert_eq!(messages.len(), expected.len(), "{messages:?}");
    for (line, expected) in messages.iter().zip(expected) {
        let (took, text) = line.split_once(' ').unwrap();
        assert!(text.contains(expected), "{text:?} does not say {expected:?}");
        assert!(took.parse::<u128>().unwrap() < AT_ONCE.as_millis(), "{line}");
    }
}

#[test]
fn no_server_was_named() {
    let messages = elsewhere("unnamed", &[]);
    assert_messages(&messages, &["set REDIS_URL", "fine", "fine"]);
}

#[test]
fn installed_twice() {
    let messages = elsewhere("twice", &[]);
    assert_messages(&messages, &["fine", "is installed already; call `install()` once"]);
}

#[test]
fn installed_after_the_first_use() {
    let server = Server::start();
    let messages = elsewhere("late", &[("REDIS_URL", &server.url())]);
    assert_messages(&messages, &["fine", "before the first annotated function"]);
}
