//! The memory of a call.

use std::sync::Arc;

use meshwright_backend::{Buffer, View, ViewMut};

/// The memory that a call reads and writes.
///
/// | operation | `src` | `dst` |
/// |---|---|---|
/// | all_reduce, broadcast, reduce, recv | | the data |
/// | all_gather, reduce_scatter, all_to_all | the input | the output |
/// | all_gather, reduce_scatter in place | | the whole tensor |
/// | scatter | the whole tensor, at the root only | this rank's part |
/// | gather | this rank's part | the whole tensor, at the root only |
/// | send | the data | |
/// | barrier | | |
pub enum Operands<'a> {
    /// Memory borrowed for a blocking call.
    #[allow(missing_docs)]
    Borrowed { src: Option<View<'a>>, dst: Option<ViewMut<'a>> },
    /// Memory handed over to an asynchronous call, which returns `dst` when it is complete.
    #[allow(missing_docs)]
    Owned { src: Option<Arc<Buffer>>, dst: Option<Buffer> },
}

impl Operands<'_> {
    /// Returns both operands for reading.
    pub fn views(&self) -> (Option<View<'_>>, Option<View<'_>>) {
        match self {
            Operands::Borrowed { src, dst } => (*src, dst.as_ref().map(ViewMut::as_view)),
            Operands::Owned { src, dst } => {
                (src.as_ref().map(|src| src.view()), dst.as_ref().map(Buffer::view))
            }
        }
    }

    /// Returns the source for reading and the destination for writing.
    pub fn views_mut(&mut self) -> (Option<View<'_>>, Option<ViewMut<'_>>) {
        match self {
            Operands::Borrowed { src, dst } => (*src, dst.as_mut().map(ViewMut::reborrow)),
            Operands::Owned { src, dst } => {
                (src.as_ref().map(|src| src.view()), dst.as_mut().map(Buffer::view_mut))
            }
        }
    }

    /// Returns the buffers that were handed over; none of a blocking call.
    pub fn into_buffers(self) -> (Option<Arc<Buffer>>, Option<Buffer>) {
        match self {
            Operands::Borrowed { .. } => (None, None),
            Operands::Owned { src, dst } => (src, dst),
        }
    }
}
