//! A web service that makes each payment once, however often its client sends it:
//! `REDIS_URL=redis://localhost cargo run --bin payments`, then twice `curl -i
//! localhost:3000/payments -H 'x-user: ada' -H 'idempotency-key: 7f3e' -d 995`.
//!
//! The second answer is the first one, with `idempotent-replayed: true`. What a key promises is in
//! `docs/IDEMPOTENCY.md`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use redis_locks::Locks;
use redis_locks_tower::IdempotencyLayer;

/// The user of a request, as found by authentication.
#[derive(Clone)]
struct User(String);

/// A stand-in for your authentication, which trusts everyone.
async fn authenticate(mut request: Request, next: Next) -> Response {
    let user = request.headers().get("x-user").and_then(|user| user.to_str().ok());
    let Some(user) = user.map(|user| User(user.to_owned())) else {
        return StatusCode::UNAUTHORIZED.into_response();
    };
    request.extensions_mut().insert(user);
    next.run(request).await
}

/// Whose key it is. A key of one user never replays the answer of another.
fn user_of(parts: &Parts) -> String {
    parts.extensions.get::<User>().map(|user| format!("user:{}", user.0)).unwrap_or_default()
}

pub fn app(locks: Locks) -> Router {
    let payments = Arc::new(AtomicU64::new(0));
    let pay = async move |amount: String| match amount.parse::<u64>() {
        Ok(cents) => {
            let number = payments.fetch_add(1, Ordering::SeqCst) + 1;
            (StatusCode::CREATED, format!("payment {number}: {cents} cents\n"))
        }
        Err(_) => (StatusCode::BAD_REQUEST, "how many cents?\n".to_owned()),
    };
    Router::new()
        .route("/payments", post(pay))
        .layer(IdempotencyLayer::new(locks).scope(user_of).required())
        .layer(from_fn(authenticate))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let locks = Locks::from_env()?;
    let address = std::env::var("ADDRESS").unwrap_or_else(|_| "127.0.0.1:3000".into());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    axum::serve(listener, app(locks)).await?;
    Ok(())
}
