//! Shifts along a sequence.

use std::panic::Location;
use std::sync::Arc;

use crate::autograd::{Halo, HaloSide, Value};
use crate::context::scope;
use crate::layout::{Dims, Shifts, refuse_routed};
use meshwright_backend::Buffer;
use meshwright_comm::Site;

use super::documents_along::InRows;
use super::mask::{Mask, MaskOf};
use super::typed::note_number;
use super::{
    AlwaysRecomputed, Count, InBackward, Operands, Operation, OperationBackward, OperationForward,
    OperationInput, Tensor, apply,
};

impl<S: Dims> Tensor<S> {
    /// Moves elements along `dim` by `by` positions: position `i` of the result holds what was at `i - by`. Zeros come
    /// in at the one end, and elements leave at the other. A negative `by` moves toward the beginning.
    ///
    /// Shape: `[.., D, ..] -> [.., D, ..]`.
    ///
    /// Along a split or distributed dim, ranks exchange the elements next to their own. The shift is along whole rows:
    /// [`shift_in_documents`](Self::shift_in_documents) keeps the documents in them apart.
    ///
    /// # Panics
    /// On all ranks, if several ranks share the dim and `by` is more than the shortest range of elements that one of
    /// them holds.
    #[track_caller]
    pub fn shift<D, P>(&self, dim: D, by: isize) -> Tensor<S>
    where
        D: Shifts<S, P>,
    {
        const { refuse_routed::<S>() };
        let _: D = dim;
        let rank = self.rank();
        note_number::<S>(rank, "shifted by", by as f32);
        if by == 0 {
            return Tensor::from_untyped(self.value().unchanged());
        }
        let extents = self.local_extents();
        let site = Site::new(scope::current_or("Tensor::shift")).at_location(Location::caller());
        let mut width = by.unsigned_abs();
        if rank.degree_of(S::DIMS[D::DIM].axes()) == 1 {
            // Everything leaves.
            width = width.min(extents[D::DIM].global);
        }
        let halo = Halo::new(rank, (S::DIMS, extents), D::DIM, width, &site);
        let sides = [HaloSide::Before, HaloSide::After];
        let [forward, backward] = if by > 0 { sides } else { [sides[1], sides[0]] };
        Tensor::from_untyped(apply(
            Shift { halo, forward, backward },
            Operands {
                rank,
                path: "",
                inputs: [OperationInput::new(self.value(), InBackward::Ignores)],
                params: [],
                extents: extents.to_vec(),
            },
        ))
    }
}

impl<S: Dims> Tensor<S> {
    /// Moves elements along a sequence by `by` positions within each of the [documents](super::Tokens::with_documents)
    /// in the rows, as [`shift`](Self::shift): zeros come in at the border of a document. They are the documents of the
    /// tokens that the tensor is computed from; without documents, each row is one.
    ///
    /// Shape: `[.., D, ..] -> [.., D, ..]`.
    ///
    /// # Panics
    /// As `shift`, and if the tokens have documents, but not along this dim.
    #[track_caller]
    pub fn shift_in_documents<D, P>(&self, dim: D, by: isize) -> Tensor<S>
    where
        D: Shifts<S, P>,
    {
        let shifted = self.shift(dim, by);
        let Some(same) = InRows::of(self).same_document_before(D::DIM, by) else { return shifted };
        let extents = self.local_extents().to_vec();
        let mask = Mask::<S>::from_untyped(Value::deferred(self.rank(), extents, same));
        mask.replace_others(&shifted, 0.0)
    }
}

/// A shift along a dim, away from one side. Its adjoint is the shift back.
struct Shift {
    halo: Halo,
    forward: HaloSide,
    backward: HaloSide,
}

impl Operation<Count<1>, Count<0>> for Shift {
    type Saved = AlwaysRecomputed<()>;

    fn forward(&self, forward: OperationForward<'_, Count<1>, Count<0>>) -> (Buffer, ()) {
        let OperationForward { rank, inputs: [x], .. } = forward;
        (self.halo.shifted(rank, &x.compute().data, self.forward), ())
    }

    fn backward(
        self,
        backward: OperationBackward<'_, '_, Count<1>, Count<0>>,
        _: AlwaysRecomputed<()>,
    ) {
        let OperationBackward { gradients, inputs: [x], gradient: dy, .. } = backward;
        let dx = self.halo.shifted(gradients.rank, &dy, self.backward);
        x.add_gradient(gradients, Arc::new(dx));
    }
}
