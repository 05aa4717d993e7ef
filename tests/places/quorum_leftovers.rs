//! What a slow or absent node of a quorum must not keep.

use testbed::eventually;

use crate::arena::{PATIENCE, ms, take};
use crate::quorum::Nodes;

#[test]
fn a_shutdown_waits_for_the_release_at_the_slowest_node() {
    let nodes = Nodes::start(3);
    let locks = nodes.locks().ttl(ms(60_000)).open().unwrap();
    let guard = take(locks.mutex("k"));
    eventually(PATIENCE, "all have it", || nodes.having("lock:k") == 3);
    // So that the release takes two round trips there.
    nodes.servers[2].run::<()>("SCRIPT FLUSH");
    nodes.proxies[2].delay_up(ms(100));
    guard.blocking_release().unwrap();
    locks.blocking_shutdown();
    nodes.assert_clean();
}
