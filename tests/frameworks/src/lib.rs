//! The attribute beside frameworks: that it compiles without a warning is the test.
#![deny(warnings)]

pub mod rest {
    use axum::extract::{Path, State};
    use axum::http::StatusCode;
    use axum::response::{IntoResponse, Response};
    use axum::{Json, Router, routing::post};
    use redis_locks::{LockError, Locks, redis_lock};

    pub struct Failure(LockError);

    impl From<LockError> for Failure {
        fn from(error: LockError) -> Self {
            Self(error)
        }
    }

    impl IntoResponse for Failure {
        fn into_response(self) -> Response {
            match self.0 {
                error if error.is_busy() => (StatusCode::CONFLICT, "busy").into_response(),
                LockError::Backend { .. } | LockError::Shutdown => {
                    (StatusCode::SERVICE_UNAVAILABLE, "try again later").into_response()
                }
                _ => (StatusCode::INTERNAL_SERVER_ERROR, "look before you repeat it").into_response(),
            }
        }
    }

    #[derive(serde::Deserialize)]
    pub struct Charge {
        amount: u64,
    }

    #[redis_lock(key = "order:{id}", wait = "2s", via = locks)]
    pub async fn charge_order(
        State(locks): State<Locks>,
        Path(id): Path<u64>,
        Json(charge): Json<Charge>,
    ) -> Result<Json<u64>, Failure> {
        Ok(Json(id + charge.amount))
    }

    #[redis_lock(key = "order:{id}", wait = "none", on_error = |error| refused(&error))]
    pub async fn cancel(Path(id): Path<u64>) -> (StatusCode, String) {
        (StatusCode::OK, String::new())
    }

    fn refused(error: &LockError) -> (StatusCode, String) {
        if error.is_busy() {
            return (StatusCode::CONFLICT, "busy".to_owned());
        }
        (StatusCode::INTERNAL_SERVER_ERROR, "look before you repeat it".to_owned())
    }

    pub fn routes(locks: Locks) -> Router {
        Router::new()
            .route("/charge/{id}", post(charge_order))
            .route("/cancel/{id}", post(cancel))
            .with_state(locks)
    }
}

pub mod actix {
    use actix_web::{Error, HttpResponse, error, post, web};
    use redis_locks::{LockError, redis_lock};

    /// The answer to the client. The error's own text is for the log.
    fn failure(error: LockError) -> Error {
        match error {
            error if error.is_busy() => error::ErrorConflict("busy"),
            LockError::Backend { .. } | LockError::Shutdown => {
                error::ErrorServiceUnavailable("try again later")
            }
            _ => error::ErrorInternalServerError("look before you repeat it"),
        }
    }

    #[post("/order/{id}")]
    #[redis_lock(key("order:{id}", id = *id), wait = "2s", on_error = |error| Err(failure(error)))]
    pub async fn charge(id: web::Path<u64>) -> Result<HttpResponse, Error> {
        Ok(HttpResponse::Ok().body(id.to_string()))
    }

    pub fn services(config: &mut web::ServiceConfig) {
        config.service(charge);
    }
}

pub mod poem_handler {
    use poem::http::StatusCode;
    use poem::web::Path;
    use poem::{Error, Result, Route, handler, post};
    use redis_locks::{LockError, redis_lock};

    fn failure(error: LockError) -> Error {
        let status = match error {
            error if error.is_busy() => StatusCode::CONFLICT,
            LockError::Backend { .. } | LockError::Shutdown => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Error::from_status(status)
    }

    #[handler]
    #[redis_lock(key = "order:{id}", wait = "2s", on_error = |error| Err(failure(error)))]
    pub async fn charge(Path(id): Path<u64>) -> Result<String> {
        Ok(id.to_string())
    }

    pub fn routes() -> Route {
        Route::new().at("/order/:id", post(charge))
    }
}

pub mod graphql {
    use async_graphql::{Context, EmptyMutation, EmptySubscription, Object, Result, Schema};
    use redis_locks::redis_lock;

    pub struct Query;

    #[Object]
    impl Query {
        #[redis_lock(key = "report:{id}", wait = "2s")]
        async fn report(&self, ctx: &Context<'_>, id: u64) -> Result<u64> {
            Ok(id + ctx.data_opt::<u64>().copied().unwrap_or_default())
        }
    }

    pub fn schema() -> Schema<Query, EmptyMutation, EmptySubscription> {
        Schema::new(Query, EmptyMutation, EmptySubscription)
    }
}

pub mod traits {
    use async_trait::async_trait;
    use redis_locks::{LockError, redis_lock};

    #[async_trait]
    pub trait Store {
        async fn save(&mut self, id: u64) -> Result<u64, LockError>;
    }

    #[derive(Default)]
    pub struct Memory {
        tenant: String,
        saved: u64,
    }

    #[async_trait]
    impl Store for Memory {
        #[redis_lock(key = "save:{self.tenant}:{id}")]
        async fn save(&mut self, id: u64) -> Result<u64, LockError> {
            self.saved += id;
            Ok(self.saved)
        }
    }
}

pub mod spans {
    use redis_locks::{LockError, redis_lock};

    #[tracing::instrument(err)]
    #[redis_lock(key = "span:{id}")]
    pub async fn outside(id: u64) -> Result<u64, LockError> {
        Ok(id)
    }

    #[redis_lock(key = "span:{id}")]
    #[tracing::instrument(skip_all, fields(id))]
    pub async fn inside(id: u64) -> Result<u64, LockError> {
        Ok(id)
    }

    #[tracing::instrument]
    #[redis_lock(key = "span:{id}")]
    pub fn blocking(id: u64) -> Result<u64, LockError> {
        Ok(id)
    }
}

pub mod database {
    use redis_locks::{Locks, redis_lock};
    use sqlx::PgPool;

    #[redis_lock(key = "account:{id}", via = locks, wait = "2s", fence = token)]
    pub async fn debit(locks: &Locks, db: &PgPool, id: i64, amount: i64) -> anyhow::Result<()> {
        let fence = i64::try_from(token)?;
        let mut tx = db.begin().await?;
        // First the number: from here on older holders are refused. It also locks the row.
        let newest = sqlx::query("UPDATE account SET fence = $1 WHERE id = $2 AND fence <= $1")
            .bind(fence)
            .bind(id)
            .execute(&mut *tx)
            .await?;
        anyhow::ensure!(newest.rows_affected() == 1, "a newer holder has account {id}, or it is gone");
        // Then read, compute and write, as often as you like, in the same transaction.
        sqlx::query("UPDATE account SET balance = balance - $1 WHERE id = $2")
            .bind(amount)
            .bind(id)
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use redis_locks::{LockError, Locks, redis_lock};
    use rstest::rstest;

    fn locks() -> &'static Locks {
        static LOCKS: LazyLock<Locks> = LazyLock::new(Locks::in_memory);
        &LOCKS
    }

    #[redis_lock(key = "case:{id}", via = locks())]
    #[rstest]
    #[case(1)]
    #[case(2)]
    fn above(#[case] id: u64) -> Result<(), LockError> {
        assert!(id > 0);
        Ok(())
    }

    #[rstest]
    #[case(1)]
    #[case(2)]
    #[tokio::test]
    // rstest hands the attributes below it to functions without arguments.
    #[redis_lock(key = "case", via = locks())]
    async fn below(#[case] id: u64) -> Result<(), LockError> {
        assert!(id > 0);
        Ok(())
    }
}
