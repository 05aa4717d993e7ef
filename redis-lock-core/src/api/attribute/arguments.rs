//! The arguments of an annotated function: what `on_error` may use of them.

/// A value that outlives the body that it is given to: what `on_error` may use of a destructured
/// argument.
#[diagnostic::on_unimplemented(
    message = "`on_error` cannot use a value of type `{Self}`, which the body owns",
    label = "dropped with the body, before `on_error` is asked",
    note = "`on_error` may use arguments that are references or `Copy`; what else it needs can be had from the `LockError`, such as its key"
)]
pub trait Kept: Sized {
    /// The value.
    fn kept(&self) -> Self;
}

#[diagnostic::do_not_recommend]
impl<T: Copy> Kept for T {
    fn kept(&self) -> Self {
        *self
    }
}

/// Keeps a copy for `on_error`.
pub fn kept<T: Kept>(value: &T) -> T {
    value.kept()
}
