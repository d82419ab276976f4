//! Buffers that a function's forward saves for its backward.

use std::sync::Arc;

use crate::autograd::SavedResults;
use crate::layout::Seal;
use meshwright_backend::{Buffer, View};

/// Results of a function's forward that its backward reads: `()`, a [`Buffer`], or an array of buffers.
///
/// Buffers are owned, so a function cannot save memory that belongs to others; operands are saved by
/// [`backward_reads`](super::Function::backward_reads).
#[diagnostic::on_unimplemented(
    message = "a function cannot save `{Self}` for its backward",
    label = "not buffers",
    note = "forward saves `()`, a `Buffer` or `[Buffer; N]`, which it allocates by `context.alloc(len)` or \
            `context.alloc_f32(len)`",
    note = "inputs, parameters and the output are saved by `backward_reads`"
)]
pub trait SavedBuffers: 'static {
    /// The buffers, shared with a checkpointed segment that saves them.
    #[doc(hidden)]
    type Shared: SavedResults;
    /// Views of the buffers, for backward: `()`, a [`View`], or an array of them.
    type Views<'a>;
    /// Returns what a forward saves that saves nothing; `None` for buffers.
    #[doc(hidden)]
    fn nothing() -> Option<Self>
    where
        Self: Sized,
    {
        None
    }
    #[doc(hidden)]
    fn into_computed(self) -> <Self::Shared as SavedResults>::Computed;
    #[doc(hidden)]
    fn into_shared(self) -> Self::Shared;
    #[doc(hidden)]
    fn saved_views(shared: &Self::Shared) -> Self::Views<'_>;
    #[doc(hidden)]
    const SEAL: Seal;
}

impl SavedBuffers for () {
    type Shared = [Arc<Buffer>; 0];
    type Views<'a> = ();

    fn nothing() -> Option<()> {
        Some(())
    }

    fn into_computed(self) -> [Buffer; 0] {
        []
    }

    fn into_shared(self) -> [Arc<Buffer>; 0] {
        []
    }

    fn saved_views(_: &[Arc<Buffer>; 0]) {}

    const SEAL: Seal = Seal::new();
}

impl SavedBuffers for Buffer {
    type Shared = [Arc<Buffer>; 1];
    type Views<'a> = View<'a>;

    fn into_computed(self) -> [Buffer; 1] {
        [self]
    }

    fn into_shared(self) -> [Arc<Buffer>; 1] {
        [Arc::new(self)]
    }

    fn saved_views([buffer]: &[Arc<Buffer>; 1]) -> View<'_> {
        buffer.view()
    }

    const SEAL: Seal = Seal::new();
}

impl<const N: usize> SavedBuffers for [Buffer; N] {
    type Shared = [Arc<Buffer>; N];
    type Views<'a> = [View<'a>; N];

    fn into_computed(self) -> [Buffer; N] {
        self
    }

    fn into_shared(self) -> [Arc<Buffer>; N] {
        self.map(Arc::new)
    }

    fn saved_views(shared: &[Arc<Buffer>; N]) -> [View<'_>; N] {
        shared.each_ref().map(|buffer| buffer.view())
    }

    const SEAL: Seal = Seal::new();
}
