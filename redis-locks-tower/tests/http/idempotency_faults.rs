//! What happens to requests with a key while clients, processes and servers fail.

use redis_locks::Locks;
use redis_locks_tower::Pass;
use testbed::Server;

use crate::client::{serve, until};
use crate::gate::Gate;
use crate::idempotency::{assert_problem, counting, keyed, layer};

#[tokio::test]
async fn ik7_a_handler_whose_client_hangs_up_runs_on_and_its_answer_is_remembered() {
    let gate = Gate::shut();
    let to = serve(counting(&gate).layer(layer(&Locks::in_memory()))).await;
    let client = keyed("/pay", "k").start(to).await.unwrap();
    until("the request runs", || gate.entered() == 1).await;
    drop(client);
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    assert_problem(&keyed("/pay", "k").send(to).await, 409, "busy");
    gate.let_pass(1);
    until("the handler ends", || gate.passed() == 1).await;
    let deadline = tokio::time::Instant::now() + testbed::PATIENCE;
    loop {
        let received = keyed("/pay", "k").send(to).await;
        if received.header("idempotent-replayed") == Some("true") {
            break assert_eq!(received.text(), "visit 1: 13 bytes");
        }
        assert!(tokio::time::Instant::now() < deadline, "it is not remembered: {received:?}");
    }
    assert_eq!((gate.entered(), gate.dropped()), (1, 0));
}

#[tokio::test]
async fn ik8_a_lock_that_is_lost_is_503_and_nothing_is_remembered() {
    let (locks, gate) = (Locks::in_memory(), Gate::shut());
    let to = serve(counting(&gate).layer(layer(&locks))).await;
    let first = tokio::spawn(async move { keyed("/pay", "k").send(to).await });
    until("the request runs", || gate.entered() == 1).await;
    locks.force_release("idempotency:k", "a test").await.unwrap();
    assert_problem(&first.await.unwrap(), 503, "unknown_outcome");
    gate.let_pass(1);
    assert_eq!(keyed("/pay", "k").send(to).await.text(), "visit 2: 13 bytes");
}

#[tokio::test]
async fn ik6_a_stopped_server_is_503_and_the_handler_runs_only_if_that_is_chosen() {
    let server = Server::start();
    let locks = Locks::connect(&server.url()).await.unwrap();
    let (strict, lenient) = (Gate::open(), Gate::open());
    let refusing = serve(counting(&strict).layer(layer(&locks))).await;
    let passing = serve(counting(&lenient).layer(layer(&locks).on_outage(Pass))).await;
    assert_eq!(keyed("/pay", "k").send(refusing).await.status, 201);
    server.kill9();
    assert_problem(&keyed("/pay", "k").send(refusing).await, 503, "unavailable");
    assert_eq!(strict.entered(), 1);
    let received = keyed("/pay", "k").send(passing).await;
    assert_eq!((received.status, received.header("idempotency-skipped")), (201, Some("true")));
    assert_eq!(lenient.entered(), 1);
}

#[tokio::test]
async fn a_service_that_ends_is_503_also_where_requests_pass_in_an_outage() {
    let (locks, gate) = (Locks::in_memory(), Gate::open());
    let to = serve(counting(&gate).layer(layer(&locks).on_outage(Pass))).await;
    locks.shutdown().await;
    assert_problem(&keyed("/pay", "k").send(to).await, 503, "unavailable");
    assert_eq!(gate.entered(), 0);
}

#[tokio::test]
async fn an_answer_that_is_not_known_any_more_is_409() {
    let server = Server::start();
    let locks = Locks::connect(&server.url()).await.unwrap();
    let gate = Gate::open();
    let to = serve(counting(&gate).layer(layer(&locks))).await;
    assert_eq!(keyed("/pay", "k").send(to).await.status, 201);
    let values = server.keys().into_iter().filter(|key| key != "lock:idempotency:k");
    let values: Vec<String> = values.collect();
    assert_eq!(values.len(), 1, "{values:?}");
    let _: u64 = server.run(&format!("DEL {}", values[0]));
    let received = keyed("/pay", "k").send(to).await;
    // The client must not repeat it.
    assert_problem(&received, 409, "done");
    assert_eq!(gate.entered(), 1);
}

#[tokio::test]
async fn ik9_an_answer_that_cannot_be_stored_reaches_its_client() {
    let server = Server::start();
    let locks = Locks::connect(&server.url()).await.unwrap();
    let gate = Gate::shut();
    let to = serve(counting(&gate).layer(layer(&locks))).await;
    let first = tokio::spawn(async move { keyed("/pay", "k").send(to).await });
    until("the request runs", || gate.entered() == 1).await;
    server.kill9();
    gate.let_pass(2);
    let first = first.await.unwrap();
    assert_eq!((first.status, first.text()), (201, "visit 1: 13 bytes"));
    // It comes back without its data, so nothing of the first request is known.
    server.restart();
    let deadline = tokio::time::Instant::now() + testbed::PATIENCE;
    loop {
        let again = keyed("/pay", "k").send(to).await;
        if again.status != 503 {
            break assert_eq!(again.text(), "visit 2: 13 bytes");
        }
        assert!(tokio::time::Instant::now() < deadline, "it is not answered: {again:?}");
    }
}
