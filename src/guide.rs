//! The pages of `docs/`, to be read here: nothing in this module is code.
//!
//! # Files of the repository
//!
//! Where a page names another file (examples, tests, figures), it is in the repository and in the
//! package, at that path.

// Links between the pages lead to files where the pages are read as files, and to modules here: of
// two definitions of a link the first one counts.
macro_rules! pages {
    ($($(#[$on:meta])* $file:literal $name:ident)*) => {$(
        $(#[$on])*
        #[doc = include_str!("links.md")]
        #[doc = include_str!("pictures.md")]
        #[doc = include_str!(concat!("../docs/", $file))]
        pub mod $name {}
    )*};
}

pages! {
    "GUARANTEES.md" guarantees
    "CHOOSING.md" choosing
    "SECOND-CALL.md" second_call
    "WEB.md" web
    "IDEMPOTENCY.md" idempotency
    "JOBS.md" jobs
    "TRANSACTIONS.md" transactions
    "SERVER.md" server
    "QUORUM.md" quorum
    "KUBERNETES.md" kubernetes
    "RUNBOOK.md" runbook
    "DEPLOYS.md" deploys
    "FAQ.md" faq
    "GLOSSARY.md" glossary
    "TESTING.md" testing
    "OBSERVABILITY.md" observability
    "PROTOCOL.md" protocol
    "FROM-REDLOCK.md" from_redlock
    "FROM-REDISSON.md" from_redisson
    "FROM-SHEDLOCK.md" from_shedlock
    "FROM-CACHED.md" from_cached
}

// Its examples are tests, so that what is copied from it compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub mod readme {}
