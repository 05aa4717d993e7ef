//! What annotated functions need at run time: keys from values, errors into return types, and the
//! scope that a body runs in.

mod arguments;
pub use arguments::{AnySizes, Kept, Sizes, Small, kept};

mod enter;
pub use enter::{Acquired, AcquiredUnlessBusy, Scope, with_permits};

mod output;
pub use output::{
    AnyOutput, BoxedOutput, Fallible, FromLockError, FutureOutput, Output, SeenInto,
    never_own_error, output_of,
};

mod plan;
pub use plan::Fixed;

mod render;
pub use render::{collected, key, keys, render};

mod run;
pub use run::{
    Ending, Run, RunOr, blocking_run, blocking_run_or, call, ending, fence, handled, never, run,
    run_or,
};

mod segment;
pub use segment::{KeySegment, SegmentWriter};

mod wrap;
pub use wrap::{ConstantsInKeysAreUpperCase, PlainStyle, Segment, no_constant, segment};
