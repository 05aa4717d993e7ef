//! The web service: 200, 409, 503.

#![allow(dead_code, reason = "the program has a main of its own")]

#[path = "../src/bin/orders.rs"]
mod orders;

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
