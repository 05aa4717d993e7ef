//! A web service that runs one charge at a time for each order, across all its machines:
//! `REDIS_URL=redis://localhost cargo run --bin orders`, then `curl -X POST
//! localhost:3000/orders/7/charge` from two shells.
//!
//! Another request charges the order: 409, try again. The lock server is down: 503, nothing was
//! charged. On SIGTERM the service takes no new requests, finishes the running ones, and releases
//! its locks. `/readyz` is for a load balancer, `/metrics` for Prometheus.

use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
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
                let later = [(RETRY_AFTER, "2")];
                let unavailable = StatusCode::SERVICE_UNAVAILABLE;
                return (unavailable, later, "try again later").into_response();
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
    // Spawned, so that a client that hangs up does not cut a charge off halfway.
    let work = tokio::spawn(async move { charge(&locks, id).await });
    work.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}

/// Checks all orders, and stops early when the service is about to end.
#[redis_lock(key = "audit", via = locks, wait = "2s", max_waiters = 8)]
async fn audit(locks: &Locks) -> Result<String, Failure> {
    for order in 0..1_000 {
        tokio::select! {
            () = locks.draining() => return Ok(format!("stopped before order {order}\n")),
            () = tokio::time::sleep(Duration::from_millis(2)) => {}
        }
    }
    Ok("all orders are right\n".into())
}

/// Whether this instance should get requests: it is not shutting down, and the lock server answers.
async fn ready(State(locks): State<Locks>) -> StatusCode {
    tokio::select! {
        biased;
        () = locks.draining() => StatusCode::SERVICE_UNAVAILABLE,
        ping = locks.ping() => match ping {
            Ok(_) => StatusCode::OK,
            Err(_) => StatusCode::SERVICE_UNAVAILABLE,
        },
    }
}

pub fn app(locks: Locks) -> Router {
    Router::new()
        .route("/orders/{id}/charge", post(handle))
        .route("/audit", post(async |State(locks): State<Locks>| audit(&locks).await))
        .route("/readyz", get(ready))
        .with_state(locks)
}

/// Collects the metrics of all locks, and serves them to Prometheus.
pub fn metrics() -> anyhow::Result<Router> {
    let seconds = [0.001, 0.005, 0.02, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0];
    let recorder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &seconds)?
        .install_recorder()?;
    Ok(Router::new().route("/metrics", get(async move || recorder.render())))
}

/// Ends at SIGTERM, as from Kubernetes or systemd, and at Ctrl-C.
async fn asked_to_end() -> std::io::Result<()> {
    let mut term = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        _ = term.recv() => Ok(()),
        interrupted = tokio::signal::ctrl_c() => interrupted,
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let metrics = metrics()?; // before the first lock
    let locks = Locks::from_env()?;
    let address = std::env::var("ADDRESS").unwrap_or_else(|_| "127.0.0.1:3000".into());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    let ending = locks.clone();
    axum::serve(listener, app(locks).merge(metrics))
        .with_graceful_shutdown(async move {
            if let Err(error) = asked_to_end().await {
                eprintln!("no signal can be waited for: {error}");
                std::future::pending::<()>().await;
            }
            // From now on no call gets a lock, and `/readyz` says so. Those that have one may finish.
            ending.drain(Duration::from_secs(20)).await;
        })
        .await?; // returns when the last request is answered
    Ok(())
}
