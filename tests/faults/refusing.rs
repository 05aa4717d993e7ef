//! Ways to make a server refuse, and to end that.

use std::thread;

use testbed::{Server, eventually, free_port};

use crate::support::{PATIENCE, is_before, is_without_scripts};

/// Makes it a replica of a server that does not exist.
pub(crate) fn demote(server: &Server) {
    server.run::<()>(&format!("REPLICAOF 127.0.0.1 {}", free_port()));
}

pub(crate) fn promote(server: &Server) {
    server.run::<()>("REPLICAOF NO ONE");
}

/// Has it refuse writes because it has no replica.
pub(crate) fn demand_a_replica(server: &Server) {
    server.run::<()>("CONFIG SET min-replicas-to-write 1");
}

/// Whether that stops what a test does: before 6.2 it stops commands, and no scripts.
pub(crate) fn is_refused_for_want_of_replicas() -> bool {
    is_without_scripts() || !is_before(6, 2)
}

pub(crate) fn demand_no_replica(server: &Server) {
    server.run::<()>("CONFIG SET min-replicas-to-write 0");
}

/// Keeps the server busy with a script that never ends, until it is killed.
pub(crate) fn endless_script(server: &Server) {
    // The name that all versions know.
    server.run::<()>("CONFIG SET lua-time-limit 50");
    let client = server.client();
    thread::spawn(move || {
        let mut connection = client.get_connection().expect("the server is there");
        let _ = redis::cmd("EVAL").arg("while true do end").arg(0).query::<()>(&mut connection);
    });
    eventually(PATIENCE, "the server is busy", || {
        server.query::<()>(&redis::cmd("PING")).is_err_and(|error| error.code() == Some("BUSY"))
    });
}

pub(crate) fn kill_script(server: &Server) {
    server.run::<()>("SCRIPT KILL");
}
