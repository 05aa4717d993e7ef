//! A key of one scope never replays an answer of another.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::routing::any;
use http_body_util::BodyExt;
use proptest::prelude::*;
use redis_locks::Locks;
use redis_locks_tower::IdempotencyLayer;
use tower_layer::Layer;
use tower_service::Service;

/// Of the layer's own marks, so that one text could be taken for another.
fn text(least: usize) -> impl Strategy<Value = String> {
    let marks = [":", "%3A", "%", "a", "{", "}", "é", " ", "*", "~", "\\"];
    prop::collection::vec(prop::sample::select(marks.to_vec()), least..4).prop_map(|it| it.concat())
}

fn key() -> impl Strategy<Value = String> {
    let marks = [":", "%3A", "%", "a", "{", "}", "*", "~"];
    prop::collection::vec(prop::sample::select(marks.to_vec()), 1..4).prop_map(|it| it.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn ik11_a_key_replays_an_answer_of_its_scope_method_path_and_payload_alone(
        requests in prop::collection::vec(
            (text(0), key(), 0..2_usize, 0..2_usize, 0..2_usize),
            2..40,
        )
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let visits = std::sync::Arc::new(AtomicU64::new(0));
            let handler = async move || visits.fetch_add(1, Ordering::SeqCst).to_string();
            let app: Router = Router::new().route("/{*path}", any(handler));
            let layer = IdempotencyLayer::new(Locks::in_memory())
                .scope(|parts| parts.extensions.get::<String>().cloned().unwrap_or_default());
            let mut service = layer.layer(app);
            // What each key of each scope was first used for, and the answer.
            let mut firsts = HashMap::new();
            for (scope, key, method, path, payload) in requests {
                let request = Request::builder()
                    .method(["POST", "PATCH"][method])
                    .uri(["/a", "/b"][path])
                    .header("idempotency-key", &key)
                    .extension(scope.clone())
                    .body(axum::body::Body::from(["x", "y"][payload]))
                    .unwrap();
                let response = service.call(request).await.unwrap();
                let status = response.status();
                let is_replayed = response.headers().contains_key("idempotent-replayed");
                let body = response.into_body().collect().await.unwrap().to_bytes();
                let used = (method, path, payload);
                match firsts.get(&(scope.clone(), key.clone())) {
                    None => {
                        assert!(!is_replayed && status == StatusCode::OK, "{scope:?} {key:?}");
                        firsts.insert((scope, key), (used, body));
                    }
                    Some((first, answer)) if *first == used => {
                        assert!(is_replayed, "{scope:?} {key:?}");
                        assert_eq!(*answer, body);
                    }
                    Some(_) => assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY),
                }
            }
        });
    }
}
