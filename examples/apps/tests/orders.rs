//! The web service: 200, 409, 503, and its end.

#![allow(dead_code, reason = "the program has a main of its own")]

#[path = "../src/bin/orders.rs"]
mod orders;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use redis_locks::Locks;
use testbed::{Server, free_port};
use tower::ServiceExt;

async fn charge(locks: &Locks, id: u64) -> StatusCode {
    let request = Request::post(format!("/orders/{id}/charge")).body(Body::empty()).unwrap();
    orders::app(locks.clone()).oneshot(request).await.unwrap().status()
}

#[tokio::test]
async fn one_charge_of_an_order_at_a_time() {
    let server = Server::start();
    let [here, there] = [(); 2].map(|()| Locks::open(server.url()).unwrap());
    let (one, other, second) = tokio::join!(charge(&here, 7), charge(&there, 7), charge(&there, 8));
    let mut both = [one, other];
    both.sort();
    assert_eq!(both, [StatusCode::OK, StatusCode::CONFLICT]);
    assert_eq!(second, StatusCode::OK, "other orders go on");
    assert_eq!(charge(&here, 7).await, StatusCode::OK, "it is free again");
    server.assert_clean();
}

#[tokio::test]
async fn nobody_is_charged_while_the_server_is_down() {
    let url = format!("redis://127.0.0.1:{}", free_port());
    let locks = Locks::builder().url(url).outage(Duration::from_secs(1)).open().unwrap();
    assert_eq!(charge(&locks, 7).await, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn a_client_learns_nothing_of_the_inside() {
    let locks = Locks::in_memory();
    let _held = locks.mutex("order:7").acquire().await.unwrap();
    let request = Request::post("/orders/7/charge").body(Body::empty()).unwrap();
    let response = orders::app(locks.clone()).oneshot(request).await.unwrap();
    let text = axum::body::to_bytes(response.into_body(), 1_000).await.unwrap();
    assert_eq!(text, "another request has this order");
}

#[tokio::test]
async fn a_service_is_ready_while_its_lock_server_answers() {
    let ready = async |locks| {
        let request = Request::get("/readyz").body(Body::empty()).unwrap();
        orders::app(locks).oneshot(request).await.unwrap().status()
    };
    assert_eq!(ready(Locks::in_memory()).await, StatusCode::OK);
    let gone = Locks::open(format!("redis://127.0.0.1:{}", free_port())).unwrap();
    assert_eq!(ready(gone).await, StatusCode::SERVICE_UNAVAILABLE);
    let ending = Locks::in_memory();
    let _held = ending.mutex("k").acquire().await.unwrap();
    let drain = ending.drain(Duration::from_secs(60));
    assert!(tokio::time::timeout(Duration::from_millis(10), drain).await.is_err());
    assert_eq!(ready(ending).await, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn an_audit_ends_early_when_the_service_ends() {
    let locks = Locks::in_memory();
    let request = Request::post("/audit").body(Body::empty()).unwrap();
    let audit = tokio::spawn(orders::app(locks.clone()).oneshot(request));
    let holds = async || locks.status("audit").await.unwrap().is_held();
    let patience = Duration::from_secs(10);
    let began = async { while !holds().await {} };
    tokio::time::timeout(patience, began).await.unwrap();
    assert_eq!(locks.drain(patience).await.cut_off, 0);
    let body = audit.await.unwrap().unwrap().into_body();
    let text = axum::body::to_bytes(body, 1_000).await.unwrap();
    assert!(text.starts_with(b"stopped before order "), "{text:?}");
}

#[tokio::test]
async fn prometheus_reads_each_function() {
    let metrics = orders::metrics().unwrap();
    let locks = Locks::in_memory();
    assert_eq!(charge(&locks, 7).await, StatusCode::OK);
    let request = Request::get("/metrics").body(Body::empty()).unwrap();
    let body = metrics.oneshot(request).await.unwrap().into_body();
    let text = axum::body::to_bytes(body, 100_000).await.unwrap();
    let text = String::from_utf8(text.to_vec()).unwrap();
    let charge = "{kind=\"mutex\",lock=\"order:{id}\",function=\"orders::orders::charge\"} ";
    let wanted = format!("redis_locks_acquired_total{charge}");
    assert!(text.lines().any(|line| line.starts_with(&wanted)), "{text}");
    assert!(text.contains("redis_locks_wait_seconds_bucket{"), "{text}");
}

/// The service as a process. A request is under way when SIGTERM comes: it is answered, the process
/// ends by itself, and no lock is left.
#[test]
fn a_service_that_is_asked_to_end_answers_first_and_leaves_no_lock() {
    let server = Server::start();
    let mut service = Command::new(env!("CARGO_BIN_EXE_orders"))
        .env("REDIS_URL", server.url())
        .env("ADDRESS", "127.0.0.1:0")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(service.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("listening on ").unwrap();

    let mut client = TcpStream::connect(address).unwrap();
    client
        .write_all(b"POST /orders/7/charge HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        .unwrap();
    let locks = Locks::open(server.url()).unwrap();
    testbed::eventually(Duration::from_secs(10), "the order is locked", || {
        locks.blocking_status("order:7").unwrap().is_held()
    });
    let asked = Command::new("kill").arg(service.id().to_string()).status().unwrap();
    assert!(asked.success());
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(service.wait().unwrap().success());
    locks.blocking_shutdown();
    server.assert_clean();
}
