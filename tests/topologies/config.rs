//! Mistakes that are found before anything is sent.

use redis_locks::{ConfigError, LockError, Locks};

fn cause(builder: redis_locks::LocksBuilder) -> ConfigError {
    match builder.open() {
        Err(LockError::InvalidConfig { cause, .. }) => cause,
        other => panic!("{other:?}"),
    }
}

const NONE: [&str; 0] = [];

#[test]
fn several_servers_are_checked_before_they_are_asked() {
    let cluster = |seeds: &[&str]| cause(Locks::builder().cluster(seeds));
    assert_eq!(cause(Locks::builder().cluster(NONE)), ConfigError::NoSeeds);
    assert_eq!(cluster(&["redis://a", "redis://:other@b"]), ConfigError::SeedsDiffer);
    assert!(matches!(cluster(&["redis://a/1"]), ConfigError::ClusterDatabase { db: 1, .. }));
    assert!(matches!(cluster(&["a:7000"]), ConfigError::NoScheme));
    let in_url = Locks::builder().url("redis-cluster://a,b/1");
    assert!(matches!(cause(in_url), ConfigError::ClusterDatabase { db: 1, .. }));
    assert_eq!(cause(Locks::builder().sentinel(["redis://a"], "")), ConfigError::NoPrimaryName);
    assert_eq!(cause(Locks::builder().url("redis-sentinel://a,b")), ConfigError::NoPrimaryName);
    assert_eq!(cause(Locks::builder().sentinel(NONE, "m")), ConfigError::NoSeeds);
}

#[test]
fn what_has_no_meaning_for_a_place_is_refused() {
    let auth = |builder: redis_locks::LocksBuilder| cause(builder.sentinel_auth("u", "p"));
    let lacks = |cause: ConfigError, wrong: &str| {
        let is_it = matches!(&cause, ConfigError::Requires { option, .. } if *option == wrong);
        assert!(is_it, "{cause:?}");
    };
    lacks(auth(Locks::builder().url("redis://a")), "sentinel_auth");
    lacks(auth(Locks::builder().cluster(["redis://a"])), "sentinel_auth");
    let mapped = Locks::builder().url("redis://a").address_map(|host, port| (host.into(), port));
    lacks(cause(mapped), "address_map");
    let replicated = Locks::builder().in_memory().replicas(1);
    lacks(cause(replicated), "replicas");
}

#[test]
fn no_password_is_shown_of_several_servers() {
    for url in
        ["redis-cluster://u:secret@a:7000,b:7001", "redis-sentinel://u:secret@a:1,b:2/mymaster"]
    {
        let locks = Locks::open(url).unwrap();
        let shown = format!("{locks:?}");
        assert!(!shown.contains("secret"), "{shown}");
        assert!(shown.contains("a:") && shown.contains("b:"), "{shown}");
    }
}
