//! What annotated functions need at run time: keys from values, errors into return types, and the
//! scope that a body runs in.

mod enter;
mod output;
mod plan;
mod render;
mod run;
mod segment;

pub use enter::{Acquired, AcquiredUnlessRefused, Scope, with_permits};
pub use output::{
    AnyOutput, Fallible, FromLockError, FutureOutput, HoldsFuture, Output, ResultOutput, SeenInto,
    never_own_error, output_of,
};
pub use plan::Fixed;
pub use render::{collected, key, keys, render};
pub use run::{
    Ending, Kept, Run, RunOr, blocking_run, blocking_run_or, call, ending, fence, handled, kept,
    left, never, own_failure, run, run_or,
};
pub use segment::{
    ConstantsInKeysAreUpperCase, KeySegment, PlainStyle, Segment, SegmentWriter, no_constant,
    segment,
};
