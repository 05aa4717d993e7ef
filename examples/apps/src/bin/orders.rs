//! A web service that charges an order once at a time, on however many machines it runs:
//! `REDIS_URL=redis://localhost cargo run --bin orders`, then
//! `curl -X POST localhost:3000/orders/7/charge` from two shells.
//!
//! Somebody else charges the order: 409, try again. The lock server is down: 503, nobody is
//! charged.

use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use redis_locks::{LockError, Locks, redis_lock};

/// Why a handler failed, and the answer to the client.
pub struct Failure(LockError);

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        Self(error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = match &self.0 {
            LockError::Busy { .. } => StatusCode::CONFLICT,
            LockError::Backend { .. } | LockError::Shutdown => StatusCode::SERVICE_UNAVAILABLE,
            // Lost: nobody knows whether the charge went through, so nobody should repeat it blindly.
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, self.0.to_string()).into_response()
    }
}

/// Takes some time for one order, while others go on.
#[redis_lock(key = "order:{id}", via = locks, wait = "none", ttl = "10s")]
async fn charge(locks: &Locks, id: u64) -> Result<String, Failure> {
    tokio::time::sleep(Duration::from_millis(200)).await;
    Ok(format!("order {id} is charged\n"))
}

async fn handle(State(locks): State<Locks>, Path(id): Path<u64>) -> Result<String, Failure> {
    charge(&locks, id).await
}

pub fn app(locks: Locks) -> Router {
    Router::new().route("/orders/{id}/charge", post(handle)).with_state(locks)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let locks = Locks::from_env()?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    axum::serve(listener, app(locks.clone())).await?;
    locks.shutdown().await;
    Ok(())
}
