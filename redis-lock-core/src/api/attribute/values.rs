//! How an annotated function's return value is stored for other calls, and read from what another call has
//! stored.

use std::fmt;

use crate::domain::value::{Finish, StoredValue};
use crate::{Guard, LockError};

/// How the value of a function becomes JSON and back. One for each return type; made by
/// `Output::codec`.
pub struct Codec<R> {
    pub(super) finish: fn(&Guard, &R) -> Finish,
    pub(super) reads: fn(&StoredValue) -> bool,
    pub(super) read: fn(&StoredValue, LockError) -> Result<R, LockError>,
}

impl<R> Clone for Codec<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Codec<R> {}

impl<R> fmt::Debug for Codec<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Codec").finish_non_exhaustive()
    }
}

#[cfg(feature = "serde")]
mod serde {
    use ::serde::Serialize;
    use ::serde::de::DeserializeOwned;

    use super::super::output::{AnyOutput, ResultOutput};
    use super::Codec;
    use crate::api::reply;
    use crate::domain::value::Finish;

    impl<T, E> ResultOutput<Result<T, E>> {
        /// The value is that of `Ok`.
        #[must_use]
        pub fn codec(&self) -> Codec<Result<T, E>>
        where
            T: Serialize + DeserializeOwned,
        {
            Codec {
                finish: |guard, value| {
                    value.as_ref().map_or(Finish::Release, |value| reply::finish(guard, value))
                },
                reads: |value| reply::read::<T>(value).is_ok(),
                read: |value, done| {
                    reply::read(value).map(Ok).map_err(|why| done.without_value(why))
                },
            }
        }
    }

    impl<R> AnyOutput<R> {
        /// The value is all of it.
        #[must_use]
        pub fn codec(&self) -> Codec<R>
        where
            R: Serialize + DeserializeOwned,
        {
            Codec {
                finish: |guard, value| reply::finish(guard, value),
                reads: |value| reply::read::<R>(value).is_ok(),
                read: |value, done| reply::read(value).map_err(|why| done.without_value(why)),
            }
        }
    }
}

/// What `replay` and `share` need.
#[cfg(not(feature = "serde"))]
mod without {
    use super::super::output::AnyOutput;
    use super::Codec;
    use crate::LockRequest;

    /// Implemented by nothing.
    #[diagnostic::on_unimplemented(
        message = "`replay` and `share` need the feature `serde` of `redis-locks`",
        label = "add it: `redis-locks = {{ version = \"…\", features = [\"serde\"] }}`"
    )]
    pub trait FeatureSerde {}

    impl<R> AnyOutput<R> {
        /// Refused.
        #[must_use]
        pub fn codec(&self) -> Codec<R>
        where
            R: FeatureSerde,
        {
            loop {
                std::thread::park();
            }
        }
    }

    /// Without a lifetime, rustc would refuse the bound itself, not its use.
    #[doc(hidden)]
    impl LockRequest {
        pub fn replay(self) -> Self
        where
            for<'a> Self: FeatureSerde,
        {
            self
        }

        pub fn share(self) -> Self
        where
            for<'a> Self: FeatureSerde,
        {
            self
        }
    }
}

#[cfg(not(feature = "serde"))]
pub use without::FeatureSerde;
