use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::request::Parts;
use redis_locks::{LockError, LockRequest, Locks};
use redis_locks_tower::LockLayer;
use testbed::Server;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use crate::client::{Received, Sent, serve, until};
use crate::gate::Gate;

/// Says which lock a request needs.
type Naming = fn(&Locks, &Parts) -> Result<Option<LockRequest>, LockError>;

fn layer(
    locks: &Locks,
    naming: Naming,
) -> LockLayer<impl Fn(&Parts) -> Result<Option<LockRequest>, LockError> + Clone + use<>> {
    let named = locks.clone();
    LockLayer::new(locks.clone(), move |parts| naming(&named, parts))
}

fn by_path(locks: &Locks, parts: &Parts) -> Result<Option<LockRequest>, LockError> {
    Ok(Some(locks.mutex(format!("secret:{}", parts.uri.path())).no_wait()))
}

fn passing(gate: &Gate) -> Router {
    let gate = gate.clone();
    let handler = async move || {
        gate.pass().await;
        "passed"
    };
    Router::new().route("/{*path}", post(handler))
}

fn request(path: &str) -> Sent {
    Sent::new("POST", path)
}

/// How many wait for the lock `secret`.
fn waiters(locks: &Locks) -> usize {
    locks.blocking_status("secret").unwrap().waiters.len()
}

fn assert_problem(received: &Received, status: u16, code: &str) {
    assert_eq!(received.status, status, "{received:?}");
    assert_eq!(received.header("content-type"), Some("application/problem+json"));
    assert!(received.text().contains(&format!("\"code\":\"{code}\"")), "{}", received.text());
    let text = received.text();
    assert!(text.contains(&format!("\"status\":{status},")), "{text}");
    assert!(!text.contains("secret"), "the key is for the log: {text}");
}

#[tokio::test]
async fn a_request_whose_lock_is_busy_gets_409_and_one_for_another_lock_runs() {
    let (locks, gate) = (Locks::in_memory(), Gate::shut());
    let to = serve(passing(&gate).layer(layer(&locks, by_path))).await;
    let first = tokio::spawn(async move { request("/orders/7").send(to).await });
    until("the first request runs", || gate.entered() == 1).await;

    assert_problem(&request("/orders/7").send(to).await, 409, "busy");
    gate.let_pass(2);
    assert_eq!(first.await.unwrap().text(), "passed");
    assert_eq!(request("/orders/8").send(to).await.text(), "passed");
    assert_eq!(gate.entered(), 2, "a refused request does not run");
}

#[tokio::test]
async fn a_request_without_a_lock_runs_beside_the_others() {
    let (locks, gate) = (Locks::in_memory(), Gate::open());
    let to = serve(passing(&gate).layer(layer(&locks, |_, _| Ok(None)))).await;
    let _held = locks.mutex("secret:/a").acquire().await.unwrap();
    assert_eq!(request("/a").send(to).await.text(), "passed");
}

#[tokio::test]
async fn a_request_that_finds_too_many_waiting_gets_429() {
    let (locks, gate) = (Locks::in_memory(), Gate::open());
    let naming: Naming = |locks, _| Ok(Some(locks.mutex("secret").max_waiters(1)));
    let to = serve(passing(&gate).layer(layer(&locks, naming))).await;
    let held = locks.mutex("secret").acquire().await.unwrap();
    let waiting = tokio::spawn(async move { request("/a").send(to).await });
    until("a request waits", || waiters(&locks) == 1).await;
    assert_problem(&request("/a").send(to).await, 429, "crowded");
    held.release().await.unwrap();
    assert_eq!(waiting.await.unwrap().text(), "passed");
}

#[tokio::test]
async fn a_stopped_server_is_503_with_retry_after_and_the_handler_does_not_run() {
    let server = Server::start();
    let locks = Locks::connect(&server.url()).await.unwrap();
    let gate = Gate::open();
    let to = serve(passing(&gate).layer(layer(&locks, by_path))).await;
    assert_eq!(request("/a").send(to).await.status, 200);
    server.kill9();
    let received = request("/a").send(to).await;
    assert_problem(&received, 503, "unavailable");
    assert_eq!(received.header("retry-after"), Some("2"));
    assert!(!received.text().contains("127.0.0.1"), "{}", received.text());
    assert_eq!(gate.entered(), 1);
}

#[tokio::test]
async fn a_service_that_ends_answers_503() {
    let (locks, gate) = (Locks::in_memory(), Gate::open());
    let to = serve(passing(&gate).layer(layer(&locks, by_path))).await;
    locks.shutdown().await;
    let received = request("/a").send(to).await;
    assert_problem(&received, 503, "unavailable");
    assert_eq!(received.header("retry-after"), Some("2"));
}

#[tokio::test]
async fn mistakes_of_the_program_are_500() {
    let (locks, gate) = (Locks::in_memory(), Gate::open());
    let namings: [Naming; 2] = [
        |_, _| Err(LockError::NotConfigured),
        |locks, _| Ok(Some(locks.mutex("secret").ttl(Duration::ZERO))),
    ];
    for naming in namings {
        let to = serve(passing(&gate).layer(layer(&locks, naming))).await;
        assert_problem(&request("/a").send(to).await, 500, "not_set_up");
    }
    assert_eq!(gate.entered(), 0);
}

#[tokio::test]
async fn a_lock_that_is_lost_ends_the_handler_and_is_500() {
    let (locks, gate) = (Locks::in_memory(), Gate::shut());
    let to = serve(passing(&gate).layer(layer(&locks, by_path))).await;
    let first = tokio::spawn(async move { request("/a").send(to).await });
    until("the request runs", || gate.entered() == 1).await;
    locks.force_release("secret:/a", "a test").await.unwrap();
    assert_problem(&first.await.unwrap(), 500, "lost");
    assert_eq!(gate.dropped(), 1);
}

#[tokio::test]
async fn on_error_answers_instead() {
    let (locks, gate) = (Locks::in_memory(), Gate::open());
    let answered = layer(&locks, by_path).on_error(|error: LockError| {
        let status = if error.is_busy() { StatusCode::LOCKED } else { StatusCode::IM_A_TEAPOT };
        (status, "mine").into_response()
    });
    let to = serve(passing(&gate).layer(answered)).await;
    let held = locks.mutex("secret:/a").acquire().await.unwrap();
    let received = request("/a").send(to).await;
    assert_eq!((received.status, received.text()), (423, "mine"));
    held.release().await.unwrap();
    assert_eq!(request("/a").send(to).await.text(), "passed");
}

#[tokio::test]
async fn a_client_that_hangs_up_ends_the_handler_and_frees_the_lock() {
    let (locks, gate) = (Locks::in_memory(), Gate::shut());
    let to = serve(passing(&gate).layer(layer(&locks, by_path))).await;
    let client = request("/a").start(to).await.unwrap();
    until("the request runs", || gate.entered() == 1).await;
    drop(client);
    until("the handler ends", || gate.dropped() == 1).await;
    let next = locks.mutex("secret:/a").wait(testbed::PATIENCE).acquire().await;
    assert!(next.is_ok(), "{next:?}");
}

#[tokio::test]
async fn a_detached_handler_keeps_its_lock_and_runs_to_its_end_without_its_client() {
    let (locks, gate) = (Locks::in_memory(), Gate::shut());
    let to = serve(passing(&gate).layer(layer(&locks, by_path).detached())).await;
    let client = request("/a").start(to).await.unwrap();
    until("the request runs", || gate.entered() == 1).await;
    drop(client);
    sleep(Duration::from_millis(50)).await;
    assert_problem(&request("/a").send(to).await, 409, "busy");
    gate.let_pass(1);
    until("the handler ends", || gate.passed() == 1).await;
    let next = locks.mutex("secret:/a").wait(testbed::PATIENCE).acquire().await;
    assert!(next.is_ok(), "{next:?}");
    assert_eq!(gate.dropped(), 0);
}

#[tokio::test]
async fn a_detached_request_whose_client_hangs_up_while_it_waits_does_not_run() {
    let (locks, gate) = (Locks::in_memory(), Gate::open());
    let naming: Naming = |locks, _| Ok(Some(locks.mutex("secret")));
    let to = serve(passing(&gate).layer(layer(&locks, naming).detached())).await;
    let held = locks.mutex("secret").acquire().await.unwrap();
    let client = request("/a").start(to).await.unwrap();
    until("the request waits", || waiters(&locks) == 1).await;
    drop(client);
    until("it waits no more", || waiters(&locks) == 0).await;
    held.release().await.unwrap();
    let next = locks.mutex("secret").wait(testbed::PATIENCE).acquire().await;
    assert!(next.is_ok(), "{next:?}");
    assert_eq!(gate.entered(), 0);
}

#[tokio::test]
async fn what_was_done_once_is_409_and_a_failure_is_not_done() {
    let locks = Locks::in_memory();
    let naming: Naming =
        |locks, _| Ok(Some(locks.mutex("secret").once(Duration::from_secs(60)).no_wait()));
    let handler = async |body: String| StatusCode::from_u16(body.parse().unwrap()).unwrap();
    let app = Router::new().route("/a", post(handler)).layer(layer(&locks, naming));
    let to = serve(app).await;
    for failure in [500, 400] {
        assert_eq!(request("/a").body(failure.to_string()).send(to).await.status, failure);
    }
    assert_eq!(request("/a").body("201").send(to).await.status, 201);
    assert_problem(&request("/a").body("201").send(to).await, 409, "done");
}

#[tokio::test]
async fn the_lock_is_free_when_the_head_of_the_response_is_there() {
    let locks = Locks::in_memory();
    let (sender, receiver) = mpsc::channel::<Result<Bytes, std::io::Error>>(1);
    let receiver = std::sync::Arc::new(std::sync::Mutex::new(Some(receiver)));
    let entered = Gate::open();
    let visited = entered.clone();
    let handler = async move || -> Response {
        visited.pass().await;
        let mut parts = receiver.lock().unwrap().take().unwrap();
        let frames = futures_util::stream::poll_fn(move |cx| parts.poll_recv(cx));
        Body::from_stream(frames).into_response()
    };
    let app = Router::new().route("/a", post(handler)).layer(layer(&locks, by_path));
    let to = serve(app).await;
    let client = tokio::spawn(async move { request("/a").send(to).await });
    until("the request runs", || entered.passed() == 1).await;
    sender.send(Ok("half ".into())).await.unwrap();
    let free = locks.mutex("secret:/a").wait(testbed::PATIENCE).acquire().await;
    assert!(free.is_ok(), "{free:?}");
    sender.send(Ok("whole".into())).await.unwrap();
    drop(sender);
    let received = timeout(testbed::PATIENCE, client).await.unwrap().unwrap();
    assert_eq!(received.text(), "half whole");
}

#[tokio::test]
async fn a_client_of_grpc_gets_a_status_of_grpc() {
    let (locks, gate) = (Locks::in_memory(), Gate::open());
    let to = serve(passing(&gate).layer(layer(&locks, by_path))).await;
    let _held = locks.mutex("secret:/a").acquire().await.unwrap();
    for kind in ["application/grpc", "application/grpc+proto"] {
        let received = request("/a").header("content-type", kind).send(to).await;
        assert_eq!((received.status, received.header("grpc-status")), (200, Some("10")));
        assert!(received.body.is_empty());
    }
    let received = request("/a").header("content-type", "application/grpc-web").send(to).await;
    assert_eq!(received.status, 409);
}

#[tokio::test]
async fn a_handler_uses_the_locks_of_its_layer() {
    #[redis_locks::redis_lock(key = "inner", wait = "none")]
    async fn annotated() -> Result<&'static str, LockError> {
        Ok("ran")
    }
    let locks = Locks::in_memory();
    let handler = async || match annotated().await {
        Ok(text) => text.into_response(),
        Err(error) => StatusCode::from_u16(error.http_status()).unwrap().into_response(),
    };
    let app = Router::new().route("/a", post(handler)).layer(layer(&locks, by_path));
    let to = serve(app).await;
    assert_eq!(request("/a").send(to).await.text(), "ran");
    let _held = locks.mutex("inner").acquire().await.unwrap();
    assert_eq!(request("/a").send(to).await.status, 409);
}
