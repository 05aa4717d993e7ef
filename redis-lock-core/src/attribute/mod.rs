//! What annotated functions need at run time: keys from values, errors into return types, and the
//! scope that a body runs in.

mod output;
pub use output::{AnyOutput, Fallible, FromLockError, Output, SeenInto, never_own_error};

mod render;
pub use render::{key, keys, render};

mod run;
pub use run::{Scope, blocking_run, fence, run, scope, scope_or};

mod segment;
pub use segment::{KeySegment, SegmentWriter};

mod wrap;
pub use wrap::{PlainStyle, Segment, segment};
