//! Each row of the table of `IdempotencyLayer`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::IntoResponse;
use axum::routing::any;
use http_body_util::{BodyExt, Full};
use redis_locks::Locks;
use redis_locks_tower::{IdempotencyLayer, Scope};

use crate::client::{Received, Sent, serve, until};
use crate::gate::Gate;

type Everyone = fn(&http::request::Parts) -> String;

pub(crate) fn layer(locks: &Locks) -> IdempotencyLayer<Everyone> {
    IdempotencyLayer::new(locks.clone()).scope(Scope::everyone())
}

/// Answers with the status that the query names, with the number of the visit.
pub(crate) fn counting(gate: &Gate) -> Router {
    let (gate, visits) = (gate.clone(), Arc::new(AtomicUsize::new(0)));
    let handler = async move |request: axum::extract::Request| {
        let visit = visits.fetch_add(1, Ordering::SeqCst) + 1;
        let status = request.uri().query().unwrap_or("201").parse().unwrap();
        let payload = request.into_body().collect().await.unwrap().to_bytes();
        gate.pass().await;
        let headers = [("x-visit", visit.to_string()), ("set-cookie", format!("s={visit}"))];
        let status = StatusCode::from_u16(status).unwrap();
        (status, headers, format!("visit {visit}: {} bytes", payload.len())).into_response()
    };
    Router::new().route("/{*path}", any(handler))
}

pub(crate) fn keyed(path: &str, key: &str) -> Sent {
    Sent::new("POST", path).header("idempotency-key", key).body("{\"cents\":995}")
}

#[track_caller]
fn assert_replayed(received: &Received, first: &Received) {
    assert_eq!(received.header("idempotent-replayed"), Some("true"), "{received:?}");
    assert_eq!(first.header("idempotent-replayed"), None);
    let stored = |it: &Received| {
        let left = ["date", "set-cookie", "idempotent-replayed"];
        let mut headers = it.headers.clone();
        headers.retain(|(name, _)| !left.contains(&&**name));
        headers.sort();
        headers
    };
    assert_eq!((received.status, stored(received)), (first.status, stored(first)));
    assert_eq!((&received.body, &received.trailers), (&first.body, &first.trailers));
}

#[track_caller]
pub(crate) fn assert_problem(received: &Received, status: u16, code: &str) {
    assert_eq!(received.status, status, "{received:?}");
    assert_eq!(received.header("content-type"), Some("application/problem+json"));
    assert!(received.text().contains(&format!("\"code\":\"{code}\"")), "{}", received.text());
    assert!(received.text().contains(&format!("\"status\":{status},")), "{}", received.text());
    let is_later = received.header("retry-after").is_some();
    assert_eq!(is_later, status == 503, "{received:?}");
}

#[tokio::test]
async fn ik1_a_repetition_gets_the_stored_answer_and_the_handler_does_not_run() {
    let gate = Gate::open();
    let to = serve(counting(&gate).layer(layer(&Locks::in_memory()))).await;
    for status in [200, 201, 204, 302, 404, 422] {
        let request = keyed(&format!("/pay?{status}"), &format!("k{status}"));
        let first = request.send(to).await;
        assert_eq!(first.status, status);
        assert!(first.header("set-cookie").is_some(), "the first client gets all");
        let entered = gate.entered();
        for key in [format!("k{status}"), format!("\"k{status}\"")] {
            let again = keyed(&format!("/pay?{status}"), &key).send(to).await;
            assert_replayed(&again, &first);
            assert_eq!(again.header("set-cookie"), None);
        }
        assert_eq!(gate.entered(), entered);
    }
    assert_ne!(keyed("/pay", "other").send(to).await.status, 422, "another key is another request");
}

#[tokio::test]
async fn ik2_a_failure_of_the_server_is_not_remembered() {
    let gate = Gate::open();
    let to = serve(counting(&gate).layer(layer(&Locks::in_memory()))).await;
    for visit in 1..=2 {
        let received = keyed("/pay?500", "k").send(to).await;
        assert_eq!((received.status, received.header("x-visit")), (500, Some(&*visit.to_string())));
    }
}

#[tokio::test]
async fn ik2_a_panic_is_not_remembered() {
    let visits = Arc::new(AtomicUsize::new(0));
    let handler = async move || {
        assert!(visits.fetch_add(1, Ordering::SeqCst) > 0, "the first visit fails");
        "second"
    };
    let app = Router::new().route("/a", any(handler)).layer(layer(&Locks::in_memory()));
    let to = serve(app).await;
    assert!(keyed("/a", "k").try_send(to).await.is_err(), "the connection ends");
    assert_eq!(keyed("/a", "k").send(to).await.text(), "second");
    assert_eq!(keyed("/a", "k").send(to).await.header("idempotent-replayed"), Some("true"));
}

#[tokio::test]
async fn a_rule_says_what_is_remembered() {
    let gate = Gate::open();
    let rule = layer(&Locks::in_memory()).remember_if(|head| head.status == 500);
    let to = serve(counting(&gate).layer(rule)).await;
    for (status, visits) in [(201, 2), (500, 3)] {
        for _ in 0..2 {
            keyed(&format!("/a?{status}"), &format!("k{status}")).send(to).await;
        }
        assert_eq!(gate.entered(), visits);
    }
}

#[tokio::test]
async fn ik3_a_repetition_while_the_first_request_runs_is_409_or_waits_for_its_answer() {
    for wait in [Duration::ZERO, testbed::PATIENCE] {
        let gate = Gate::shut();
        let to = serve(counting(&gate).layer(layer(&Locks::in_memory()).wait(wait))).await;
        let send = || tokio::spawn(async move { keyed("/pay", "k").send(to).await });
        let first = send();
        until("the first request runs", || gate.entered() == 1).await;
        let second = send();
        if wait.is_zero() {
            let second = second.await.unwrap();
            assert_problem(&second, 409, "busy");
            gate.let_pass(1);
        } else {
            gate.let_pass(1);
            assert_replayed(&second.await.unwrap(), &first.await.unwrap());
        }
        assert_eq!(gate.entered(), 1);
    }
}

#[tokio::test]
async fn ik4_a_key_for_another_method_path_query_or_payload_is_422() {
    let gate = Gate::open();
    let to = serve(counting(&gate).layer(layer(&Locks::in_memory()))).await;
    let first = keyed("/pay", "k").send(to).await;
    let others = [
        keyed("/refund", "k"),
        keyed("/pay?200", "k"),
        keyed("/pay", "k").body("{\"cents\":996}"),
        keyed("/pay", "k").body(""),
        Sent::new("PATCH", "/pay").header("idempotency-key", "k").body("{\"cents\":995}"),
    ];
    for other in others {
        assert_problem(&other.send(to).await, 422, "mismatch");
    }
    assert_replayed(&keyed("/pay", "k").send(to).await, &first);
    assert_eq!(gate.entered(), 1);
}

#[tokio::test]
async fn ik4_another_payload_is_422_while_the_first_request_runs_in_its_process_and_in_another() {
    let server = testbed::Server::start();
    let gate = Gate::shut();
    let mut instances = Vec::new();
    for wait in [Duration::ZERO, testbed::PATIENCE] {
        let locks = Locks::connect(&server.url()).await.unwrap();
        instances.push(serve(counting(&gate).layer(layer(&locks).wait(wait))).await);
    }
    for (round, runs) in instances.clone().into_iter().enumerate() {
        let key = format!("k{round}");
        let request = keyed("/pay", &key);
        let first = tokio::spawn(async move { request.send(runs).await });
        until("the first request runs", || gate.entered() == round + 1).await;
        for asked in &instances {
            let other = keyed("/pay", &key).body("{\"cents\":996}");
            assert_problem(&other.send(*asked).await, 422, "mismatch");
        }
        gate.let_pass(1);
        let first = first.await.unwrap();
        for asked in &instances {
            assert_replayed(&keyed("/pay", &key).send(*asked).await, &first);
        }
        assert_eq!(gate.entered(), round + 1);
    }
}

#[tokio::test]
async fn ik5_a_request_without_a_key_runs_each_time_unless_a_key_is_required() {
    let gate = Gate::open();
    let optional = serve(counting(&gate).layer(layer(&Locks::in_memory()))).await;
    for visit in 1..=2 {
        let received = Sent::new("POST", "/a").send(optional).await;
        assert_eq!(received.header("x-visit"), Some(&*visit.to_string()));
    }
    let required = serve(counting(&gate).layer(layer(&Locks::in_memory()).required())).await;
    assert_problem(&Sent::new("POST", "/a").send(required).await, 400, "key_missing");
    assert_eq!(Sent::new("GET", "/a").send(required).await.status, 201);
}

#[tokio::test]
async fn ik5_a_key_that_is_empty_long_or_not_printable_is_400() {
    let gate = Gate::open();
    let to = serve(counting(&gate).layer(layer(&Locks::in_memory()))).await;
    for wrong in ["", "\"\"", "k\tk", "schlüssel", "\"open", &"k".repeat(256)] {
        assert_problem(&keyed("/a", wrong).send(to).await, 400, "key_invalid");
    }
    assert_problem(
        &keyed("/a", "k").header("idempotency-key", "l").send(to).await,
        400,
        "key_invalid",
    );
    assert_eq!(gate.entered(), 0);
    assert_eq!(keyed("/a", &"k".repeat(255)).send(to).await.status, 201);
}

#[tokio::test]
async fn keys_count_for_the_methods_that_are_named() {
    let gate = Gate::open();
    let methods = layer(&Locks::in_memory()).methods([Method::PUT]);
    let to = serve(counting(&gate).layer(methods)).await;
    for (method, visits) in [("POST", 2), ("PUT", 3)] {
        for _ in 0..2 {
            Sent::new(method, "/a").header("idempotency-key", "k").send(to).await;
        }
        assert_eq!(gate.entered(), visits, "{method}");
    }
}

#[tokio::test]
async fn an_answer_is_forgotten_after_its_period() {
    let gate = Gate::open();
    let period = Duration::from_millis(400);
    let to = serve(counting(&gate).layer(layer(&Locks::in_memory()).remember(period))).await;
    let first = keyed("/a", "k").send(to).await;
    assert_eq!(first.header("x-visit"), Some("1"));
    let deadline = tokio::time::Instant::now() + testbed::PATIENCE;
    while keyed("/a", "k").send(to).await.header("x-visit") != Some("2") {
        assert!(tokio::time::Instant::now() < deadline, "the answer stays");
    }
}

#[tokio::test]
async fn a_payload_above_the_limit_is_413() {
    let gate = Gate::open();
    let to = serve(counting(&gate).layer(layer(&Locks::in_memory()).largest_body(100))).await;
    assert_eq!(keyed("/a", "k").body([7; 100]).send(to).await.text(), "visit 1: 100 bytes");
    assert_problem(&keyed("/a", "l").body([7; 101]).send(to).await, 413, "payload_too_large");
    let unkeyed = Sent::new("POST", "/a").body([7; 101]).send(to).await;
    assert_eq!(unkeyed.text(), "visit 2: 101 bytes");
}

#[tokio::test]
async fn headers_are_stored_that_are_named() {
    let gate = Gate::open();
    let to =
        serve(counting(&gate).layer(layer(&Locks::in_memory()).store_header("Set-Cookie"))).await;
    let first = keyed("/a", "k").send(to).await;
    let again = keyed("/a", "k").send(to).await;
    assert_eq!(again.header("set-cookie"), Some("s=1"));
    assert_replayed(&again, &first);
}

/// A service whose answers are made by a function, and how often it was called.
async fn answering<R: IntoResponse>(
    locks: &Locks,
    make: impl Fn() -> R + Clone + Send + Sync + 'static,
) -> (std::net::SocketAddr, Arc<AtomicUsize>) {
    let visits = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&visits);
    let handler = async move || {
        counter.fetch_add(1, Ordering::SeqCst);
        make()
    };
    let app = Router::new().route("/a", any(handler)).layer(layer(locks));
    (serve(app).await, visits)
}

#[tokio::test]
async fn ik1_bytes_and_repeated_headers_are_replayed_as_they_are() {
    let all: Vec<u8> = (0..=255).collect();
    let body = all.clone();
    let (to, _) = answering(&Locks::in_memory(), move || {
        let mut headers = HeaderMap::new();
        for value in ["<a>", "<b>"] {
            headers.append("link", HeaderValue::from_static(value));
        }
        headers.insert("x-bytes", HeaderValue::from_bytes(b"\xff\xfe").unwrap());
        (headers, body.clone())
    })
    .await;
    let unreadable = |it: &mut Received| {
        assert!(it.headers.iter().any(|(name, _)| name == "x-bytes"));
        assert_eq!(it.headers.iter().filter(|(name, _)| name == "link").count(), 2);
    };
    let mut first = keyed("/a", "k").send(to).await;
    let mut again = keyed("/a", "k").send(to).await;
    unreadable(&mut first);
    unreadable(&mut again);
    assert_eq!(first.body, all);
    assert_replayed(&again, &first);
}

#[tokio::test]
async fn ik9_a_stream_is_passed_on_and_not_remembered() {
    let (to, visits) = answering(&Locks::in_memory(), || {
        let parts = ["half ", "whole"].map(|part| Ok::<_, std::io::Error>(Bytes::from(part)));
        Body::from_stream(futures_util::stream::iter(parts))
    })
    .await;
    for visit in 1..=2 {
        let received = keyed("/a", "k").send(to).await;
        assert_eq!((received.text(), received.header("idempotent-replayed")), ("half whole", None));
        assert_eq!(visits.load(Ordering::SeqCst), visit);
    }
}

#[tokio::test]
async fn ik1_trailers_are_replayed() {
    let (to, visits) = answering(&Locks::in_memory(), || {
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", HeaderValue::from_static("42"));
        let body = Full::from("body").with_trailers(std::future::ready(Some(Ok(trailers))));
        ([("trailer", "x-sum")], Body::new(body))
    })
    .await;
    let request = || keyed("/a", "k").header("te", "trailers");
    let first = request().send(to).await;
    assert_eq!(first.trailers, [("x-sum".to_owned(), "42".to_owned())]);
    assert_replayed(&request().send(to).await, &first);
    assert_eq!(visits.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn an_answer_of_grpc_is_replayed_unless_the_server_failed() {
    for (code, visited) in [("0", 1), ("5", 1), ("14", 2)] {
        let (to, visits) = answering(&Locks::in_memory(), move || {
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", HeaderValue::from_static(code));
            let frames = [
                Ok::<_, std::io::Error>(http_body::Frame::data(Bytes::from("message"))),
                Ok(http_body::Frame::trailers(trailers)),
            ];
            let body = http_body_util::StreamBody::new(futures_util::stream::iter(frames));
            let headers = [("content-type", "application/grpc"), ("trailer", "grpc-status")];
            (headers, Body::new(body))
        })
        .await;
        let request = || keyed("/a", "k").header("te", "trailers");
        let first = request().send(to).await;
        assert_eq!(first.trailers, [("grpc-status".to_owned(), code.to_owned())]);
        let again = request().send(to).await;
        assert_eq!((&again.body, &again.trailers), (&first.body, &first.trailers));
        assert_eq!(visits.load(Ordering::SeqCst), visited, "status {code}");
    }
}

#[tokio::test]
async fn ik9_an_answer_that_is_too_large_is_passed_on_and_not_remembered() {
    let locks = Locks::builder().in_memory().largest_value(1_000).open().unwrap();
    for (length, visited) in [(700, 1), (1_000, 2), (1_001, 2), (100_000, 2)] {
        let (to, visits) = answering(&locks, move || "x".repeat(length)).await;
        for _ in 0..2 {
            let received = keyed("/a", &format!("k{length}")).send(to).await;
            assert_eq!((received.status, received.body.len()), (200, length));
        }
        assert_eq!(visits.load(Ordering::SeqCst), visited, "{length} bytes");
    }
}
