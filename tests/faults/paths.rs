//! How many connections the paths have that tests go by. That a task reads on the short one is
//! shown beside the engine.

use testbed::{Server, eventually};

use crate::support::*;

/// How many connections the manager has, those of the scenery not counted.
fn connections(server: &Server) -> usize {
    let list: String = server.run("CLIENT LIST TYPE normal");
    let pubsub: String = server.run("CLIENT LIST TYPE pubsub");
    let clients = list.lines().chain(pubsub.lines());
    clients.filter(|line| !line.contains("user=testbed")).count()
}

async fn has_connections(count: usize) {
    if is_before(6, 0) {
        testbed::skip!("needs a server that lists the user of each connection")
    }
    let server = Server::start();
    let locks = connect(&server.url()).await;
    locks.mutex(KEY).acquire().await.unwrap().release().await.unwrap();
    eventually(PATIENCE, "its connections stand", || connections(&server) == count);
    drop(locks);
    server.assert_clean();
}

#[test]
fn the_usual_path_has_one_connection_for_commands_and_one_for_messages() {
    by(Path::Usual, 1, has_connections(2));
}

#[test]
fn the_short_path_needs_no_other() {
    by(Path::Short, 1, has_connections(2));
}
