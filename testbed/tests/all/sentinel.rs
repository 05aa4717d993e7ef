//! A group with sentinels does what tests ask of it.

use testbed::{Sentinel, ServerBinary};

fn reported_port(url: &str, name: &str) -> u16 {
    let client = redis::Client::open(url).unwrap();
    let mut command = redis::cmd("SENTINEL");
    command.arg("GET-MASTER-ADDR-BY-NAME").arg(name);
    let (_, port): (String, u16) = command.query(&mut client.get_connection().unwrap()).unwrap();
    port
}

#[test]
fn every_sentinel_tells_the_primary() {
    let group = Sentinel::start();
    assert_eq!((group.servers().len(), group.urls().len()), (2, 3));
    for url in group.urls() {
        assert_eq!(reported_port(&url, group.name()), group.primary().port());
    }
    assert!(group.primary().is_primary() && !group.replica().is_primary());
}

#[test]
fn a_killed_primary_is_replaced_and_comes_back_as_a_replica() {
    let group = Sentinel::start();
    let before = group.primary();
    before.server().run::<()>("SET lock:job 1 PX 60000");
    group.kill9(before);
    let successor = group.until_replaced(before);
    assert_ne!(successor.port(), before.port());
    assert!(successor.server().exists("lock:job"));
    before.server().restart();
    testbed::eventually(std::time::Duration::from_secs(60), "it follows", || !before.is_primary());
    group.until_ok();
}

#[test]
fn fails_over_on_demand_to_and_fro_through_proxies() {
    let group = Sentinel::builder().proxied().name("locks").start();
    assert_eq!(group.primary().port(), group.primary().proxy().port());
    let first = group.primary().port();
    let second = group.fail_over().port();
    assert_ne!(first, second);
    assert_eq!(reported_port(&group.urls()[0], "locks"), second);
}

#[test]
fn valkey_and_the_oldest_redis_have_sentinels_too() {
    for (binary, name) in
        [(ServerBinary::valkey(9), "Valkey 9"), (ServerBinary::redis_6(), "Redis 6.2")]
    {
        let Some(binary) = binary else {
            testbed::report_skipped(&format!("no {name} to be had"));
            continue;
        };
        let group = Sentinel::builder().binary(binary).start();
        let before = group.primary();
        before.server().freeze();
        group.until_replaced(before);
        before.server().thaw();
        testbed::eventually(std::time::Duration::from_secs(30), "it follows", || {
            !before.is_primary()
        });
        group.until_ok();
    }
}
