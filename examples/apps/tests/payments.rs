//! Each payment is taken once for each key of each user.

#![allow(dead_code, reason = "the program has a main of its own")]

#[path = "../src/bin/payments.rs"]
mod payments;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::Request;
use redis_locks::Locks;
use tower::ServiceExt;

/// Status, text, and whether it is a replay.
async fn pay(app: &Router, user: &str, key: &str, cents: &str) -> (u16, String, bool) {
    let request = Request::post("/payments").header("x-user", user).header("idempotency-key", key);
    let request = request.body(Body::from(cents.to_owned())).unwrap();
    let response = app.clone().oneshot(request).await.unwrap();
    let is_replayed = response.headers().contains_key("idempotent-replayed");
    let status = response.status().as_u16();
    let text = to_bytes(response.into_body(), 1_000).await.unwrap();
    (status, String::from_utf8(text.to_vec()).unwrap(), is_replayed)
}

#[tokio::test]
async fn a_payment_is_taken_once_for_each_key_of_each_user() {
    let app = payments::app(Locks::in_memory());
    let first = pay(&app, "ada", "7f3e", "995").await;
    assert_eq!(first, (201, "payment 1: 995 cents\n".into(), false));
    assert_eq!(pay(&app, "ada", "7f3e", "995").await, (201, first.1, true));
    assert_eq!(pay(&app, "ada", "7f3e", "996").await.0, 422);
    assert_eq!(pay(&app, "bob", "7f3e", "995").await.1, "payment 2: 995 cents\n");
    let unkeyed = Request::post("/payments").header("x-user", "ada").body(Body::empty()).unwrap();
    assert_eq!(app.oneshot(unkeyed).await.unwrap().status(), 400);
}
