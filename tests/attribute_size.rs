//! How large the future of an annotated function is, beside the plain function's.
//!
//! `cargo test --test attribute_size -- --nocapture` prints the figures.

use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

async fn tick() {
    tokio::task::yield_now().await;
}

macro_rules! both {
    ($name:ident($($argument:ident: $ty:ty),*) $body:block) => {
        mod $name {
            use super::*;

            pub(super) async fn plain($($argument: $ty),*) -> R<usize> $body

            #[redis_lock(key = "k")]
            pub(super) async fn ours($($argument: $ty),*) -> R<usize> $body
        }
    };
}

both!(number(n: u64) {
    tick().await;
    Ok(n as usize)
});
both!(text(s: String) {
    tick().await;
    Ok(s.len())
});
both!(large(a: [u8; 4096]) {
    tick().await;
    Ok(a.len())
});
both!(two_large(a: [u8; 4096], b: [u8; 4096]) {
    tick().await;
    Ok(a.len() + b.len())
});
both!(large_local() {
    let a = [1_u8; 4096];
    tick().await;
    Ok(a.len())
});

/// A type may be called anything.
mod misnamed {
    #[allow(non_camel_case_types, reason = "the name is what is tested")]
    pub(super) struct u64(pub(super) [u8; 4096]);
}

mod large_by_a_small_name {
    use super::misnamed::u64;
    use super::{R, redis_lock, tick};

    pub(super) async fn plain(a: u64) -> R<usize> {
        tick().await;
        Ok(a.0.len())
    }

    #[redis_lock(key = "k")]
    pub(super) async fn ours(a: u64) -> R<usize> {
        tick().await;
        Ok(a.0.len())
    }
}

#[test]
fn m10_futures_stay_about_as_large_as_the_plain_ones() {
    // The part for acquiring has one size, whatever the body.
    const ACQUIRING: usize = 400;
    let sizes = [
        ("a number", size_of_val(&number::plain(1)), size_of_val(&number::ours(1))),
        ("a string", size_of_val(&text::plain("".into())), size_of_val(&text::ours("".into()))),
        ("4 KiB", size_of_val(&large::plain([0; 4096])), size_of_val(&large::ours([0; 4096]))),
        (
            "two of 4 KiB",
            size_of_val(&two_large::plain([0; 4096], [0; 4096])),
            size_of_val(&two_large::ours([0; 4096], [0; 4096])),
        ),
        (
            "4 KiB by the name of a number",
            size_of_val(&large_by_a_small_name::plain(misnamed::u64([0; 4096]))),
            size_of_val(&large_by_a_small_name::ours(misnamed::u64([0; 4096]))),
        ),
        ("a local of 4 KiB", size_of_val(&large_local::plain()), size_of_val(&large_local::ours())),
    ];
    for (what, plain, ours) in sizes {
        println!("{what}: {plain} bytes plain, {ours} annotated");
        assert!(ours <= plain + ACQUIRING, "{what}: {ours} bytes, {plain} plain");
    }
}
