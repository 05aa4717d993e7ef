//! E98-E105: the expansion collides with no names of the user, and adds none.

use crate::support::{R as Outcome, locks};

mod e98 {
    use super::Outcome;

    #[redis_locks::redis_lock(key = "k")]
    #[rustfmt::skip]
    pub(super) fn one_line(n: u32) -> Outcome<u32> { Ok(n) }

    #[redis_locks::redis_lock(key = "k")]
    #[rustfmt::skip]
    pub(super) async fn one_line_async(n: u32) -> Outcome<u32> { Ok(n) }
}

#[tokio::test]
async fn e98_one_line_body() -> Outcome<()> {
    locks();
    assert_eq!(e98::one_line(1)? + e98::one_line_async(1).await?, 2);
    Ok(())
}

#[allow(dead_code, non_snake_case, unused_macros)]
mod e100 {
    use ::redis_locks::redis_lock;

    mod std {}
    mod core {}
    mod redis_locks {}
    struct Option;
    struct Result2;
    fn Ok<T>(_: T) {}
    fn Err<T>(_: T) {}
    fn Some<T>(_: T) {}
    struct Box;
    macro_rules! format {
        () => {};
    }
    macro_rules! concat {
        () => {};
    }
    macro_rules! pin {
        () => {};
    }

    trait Blanket {
        fn release(self) -> Self;
        fn acquire(self) -> Self;
        fn mutex(self) -> Self;
        fn ttl(self) -> Self;
        fn is_busy(&self);
        fn failed(self);
    }

    impl<T> Blanket for T {
        fn release(self) -> Self {
            self
        }
        fn acquire(self) -> Self {
            self
        }
        fn mutex(self) -> Self {
            self
        }
        fn ttl(self) -> Self {
            self
        }
        fn is_busy(&self) {}
        fn failed(self) {}
    }

    type R<T> = ::core::result::Result<T, ::redis_locks::LockError>;

    #[redis_lock(key = "e100:{n}", ttl = "5s", wait = "none", guard = lock, on_busy = R::Ok(0))]
    pub(super) async fn f(n: u32, name: ::std::string::String) -> R<u32> {
        drop(name);
        lock.ensure(::core::time::Duration::ZERO)?;
        R::Ok(n)
    }

    #[redis_lock(key = "e100:{n}", ttl = "5s", on_error = |_| 0)]
    pub(super) fn g(n: u32) -> u32 {
        n
    }
}

#[tokio::test]
async fn e100_shadowed_prelude_and_std() -> Outcome<()> {
    locks();
    assert_eq!(e100::f(1, "x".into()).await?, 1);
    assert_eq!(e100::g(2), 2);
    Ok(())
}

mod e101 {
    use redis_locks::{LockError, redis_lock};

    type Foo = Result<(), LockError>;

    #[allow(dead_code)]
    enum Bar {
        Foo,
    }

    #[redis_lock(key = "k")]
    pub(super) async fn f() -> Foo {
        use Bar::*;
        let _ = Foo;
        Ok(())
    }
}

#[tokio::test]
async fn e101_type_shadowed_inside_the_body() -> Outcome<()> {
    locks();
    e101::f().await
}

mod e103 {
    use redis_locks::{LockError, redis_lock};

    pub(super) struct A;
    pub(super) struct B;

    impl A {
        #[redis_lock(key = "a")]
        pub(super) async fn f(&self) -> Result<u32, LockError> {
            #[redis_lock(key = "nested:{n}")]
            async fn nested(n: u32) -> Result<u32, LockError> {
                Ok(n)
            }
            nested(1).await
        }
    }

    impl B {
        #[redis_lock(key = "b")]
        pub(super) async fn f(&self) -> Result<u32, LockError> {
            #[redis_lock(key = "nested")]
            fn nested() -> Result<u32, LockError> {
                Ok(2)
            }
            nested()
        }
    }
}

#[tokio::test]
async fn e103_the_same_names_and_nested_functions() -> Outcome<()> {
    locks();
    assert_eq!(e103::A.f().await? + e103::B.f().await?, 3);
    Ok(())
}

/// Two crates with hidden modules for their macros, re-exported by one module.
mod both {
    #[allow(unused_imports, reason = "only what it hides matters")]
    pub(super) use anyhow::*;
    pub(super) use redis_locks::*;
}

mod from_both {
    use super::both::{LockError, redis_lock};

    #[redis_lock(key = "k:{n}", crate = crate::hygiene::both)]
    pub(super) async fn f(n: u32) -> Result<u32, LockError> {
        Ok(n)
    }
}

#[tokio::test]
async fn m10_a_glob_of_another_crate_hides_nothing() -> Outcome<()> {
    locks();
    assert_eq!(from_both::f(7).await?, 7);
    Ok(())
}
