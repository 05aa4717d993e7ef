//! A web service that charges an order once at a time, on however many machines it runs:
//! `REDIS_URL=redis://localhost cargo run --bin orders`, then
//! `curl -X POST localhost:3000/orders/7/charge` from two shells.
//!
//! Another request charges the order: 409, try again. The lock server is down: 503, nothing was
//! charged. On SIGTERM the service takes no new requests, finishes those it has, and gives its locks
//! back.

use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
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
        // The whole text names keys, hosts and processes: it is for the log, not for clients.
        eprintln!("{}", self.0);
        let (status, text) = match &self.0 {
            error if error.is_busy() => (StatusCode::CONFLICT, "another request has this order"),
            LockError::Backend { .. } | LockError::Shutdown => {
                (StatusCode::SERVICE_UNAVAILABLE, "try again later")
            }
            // Lost: the charge may have gone through, so the client must not simply repeat it.
            _ => (StatusCode::INTERNAL_SERVER_ERROR, "look at the order before you try again"),
        };
        (status, text).into_response()
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

/// Whether this instance should get requests: whether the lock server answers.
async fn ready(State(locks): State<Locks>) -> StatusCode {
    match locks.ping().await {
        Ok(_) => StatusCode::OK,
        Err(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}

pub fn app(locks: Locks) -> Router {
    Router::new()
        .route("/orders/{id}/charge", post(handle))
        .route("/ready", get(ready))
        .with_state(locks)
}

/// Ends at SIGTERM, as from Kubernetes or systemd.
async fn asked_to_end() -> std::io::Result<()> {
    let mut term = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    term.recv().await;
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let locks = Locks::from_env()?;
    let address = std::env::var("ADDRESS").unwrap_or_else(|_| "127.0.0.1:3000".into());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    axum::serve(listener, app(locks.clone()))
        .with_graceful_shutdown(async {
            if let Err(error) = asked_to_end().await {
                eprintln!("no signal can be waited for: {error}");
                std::future::pending::<()>().await;
            }
        })
        .await?; // returns when the last request is answered
    locks.drain(Duration::from_secs(20)).await; // waits for spawned tasks that still hold a lock
    Ok(())
}
