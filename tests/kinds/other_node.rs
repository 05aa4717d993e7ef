//! Keys that another node of a cluster has.

use redis_locks::{LockError, Locks};
use testbed::{Server, eventually};

use crate::arena::{PATIENCE, ms, refused, take};

#[test]
fn slots_that_another_node_has_are_reported() {
    let (server, other) =
        (Server::builder().cluster().start(), Server::builder().cluster().start());
    let nodes: String = other.run("CLUSTER NODES");
    let mut words = nodes.split_whitespace();
    let (id, address) = (words.next().unwrap(), words.next().unwrap());
    let bus = address.split(['@', ',']).nth(1).unwrap();
    other.run::<()>("CLUSTER FLUSHSLOTS");
    server.run::<()>(&format!("CLUSTER MEET 127.0.0.1 {} {bus}", other.port()));
    let known = || server.run::<String>("CLUSTER NODES").contains(&format!("{id} 127.0.0.1"));
    eventually(PATIENCE, "they know each other", known);
    server.run::<()>(&format!(
        "CLUSTER SETSLOT {} NODE {id}",
        server.run::<u16>("CLUSTER KEYSLOT lock:a")
    ));
    let locks = Locks::open(server.url()).unwrap();
    for request in [locks.mutex("a"), locks.all(["a", "b", "c"])] {
        let error = refused(request.wait(ms(200)));
        assert!(matches!(error, LockError::Backend { .. }), "{error}");
        let message = error.to_string();
        assert!(message.contains("MOVED") && message.contains("builder().cluster"), "{message}");
    }
    assert_eq!(server.keys(), Vec::<String>::new(), "nothing is kept of what can't be had");
    take(locks.mutex("b")).blocking_release().unwrap();
    server.assert_clean();
}
