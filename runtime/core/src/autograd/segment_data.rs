//! Data that enters and leaves checkpointed segments and pipeline stages, described by its parts.

use std::sync::Arc;

use crate::context::{Rank, RunningStage};
use crate::layout::{DimInfo, Internal};
use meshwright_backend::{Buffer, DType};
use meshwright_mesh::__internal::local_len;
use meshwright_mesh::Extent;

use super::token_ids::TokenIds;
use super::value::Value;

/// Input or output of a checkpointed segment: tensors, tokens, and tuples of them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot enter or leave a recomputed segment",
    label = "not a tensor, tokens, or a tuple of them",
    note = "tensors, tokens and tuples of up to four of them can; compute anything else inside of the segment, or \
            outside; layers find the documents of their tokens themselves"
)]
pub trait SegmentData: Clone + 'static {
    /// Appends the kind of each part, in order.
    #[doc(hidden)]
    fn add_part_kinds(kinds: &mut Vec<PartKind>, internal: Internal);
    /// Appends each part, in the order of the kinds.
    #[doc(hidden)]
    fn add_parts(&self, parts: &mut Vec<Part>, internal: Internal);
    /// Creates the data from the parts that `next` returns, in the order of the kinds.
    #[doc(hidden)]
    fn from_parts(next: &mut dyn FnMut() -> Part, internal: Internal) -> Self;
}

/// Kind of a part: the meaning of its elements, with its dims as declared.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub enum PartKind {
    /// An activation, in the compute dtype. Gradients flow through it.
    Activation(&'static [DimInfo]),
    /// Token ids, which have no gradient.
    TokenIds(&'static [DimInfo]),
}

/// A part of the data: an untyped tensor, or token ids.
#[doc(hidden)]
#[derive(Clone)]
pub enum Part {
    Activation(Value),
    TokenIds(TokenIds),
}

impl PartKind {
    /// Returns the dims of the part.
    pub fn dims(&self) -> &'static [DimInfo] {
        match self {
            PartKind::Activation(dims) | PartKind::TokenIds(dims) => dims,
        }
    }

    /// Returns the dtype of a buffer that holds the part on `rank`.
    pub fn dtype(&self, rank: &Rank) -> DType {
        match self {
            PartKind::Activation(_) => rank.compute_dtype(),
            PartKind::TokenIds(_) => DType::U32,
        }
    }

    /// Creates a part of this kind from a buffer that was received: no operation of this rank has made it. `rank`
    /// refers to the micro-batch that the part belongs to.
    ///
    /// # Panics
    /// If the buffer is not one of this kind.
    pub fn part_of_buffer(&self, rank: &Rank, extents: Vec<Extent>, buffer: Arc<Buffer>) -> Part {
        assert_eq!(extents.len(), self.dims().len(), "each dim of a part has an extent");
        assert_eq!(buffer.dtype(), self.dtype(rank), "the dtype of a part follows from its kind");
        assert_eq!(buffer.len(), local_len(&extents), "the elements of a part");
        match self {
            PartKind::Activation(_) => Part::Activation(Value::constant(rank, extents, buffer)),
            PartKind::TokenIds(_) => Part::TokenIds(TokenIds::of_buffer(rank, extents, buffer)),
        }
    }
}

impl Part {
    /// Returns the rank that holds the part, which refers to its micro-batch.
    #[doc(hidden)]
    pub fn rank(&self) -> &Rank {
        match self {
            Part::Activation(value) => value.rank(),
            Part::TokenIds(ids) => ids.rank(),
        }
    }

    /// Returns the local extent of each dim.
    #[doc(hidden)]
    pub fn extents(&self) -> &[Extent] {
        match self {
            Part::Activation(value) => value.extents(),
            Part::TokenIds(ids) => ids.extents(),
        }
    }

    /// Returns the buffer of its elements.
    #[doc(hidden)]
    pub fn buffer(&self) -> Arc<Buffer> {
        match self {
            Part::Activation(value) => value.compute().data,
            Part::TokenIds(ids) => Arc::clone(ids.on_device()),
        }
    }

    /// Returns the activation, or `None` for token ids.
    pub(crate) fn activation(&self) -> Option<&Value> {
        match self {
            Part::Activation(value) => Some(value),
            Part::TokenIds(_) => None,
        }
    }

    /// Returns the part with its activation replaced by `map`, or the same token ids.
    pub(crate) fn map_activation(&self, map: impl FnOnce(&Value) -> Value) -> Part {
        match self {
            Part::Activation(value) => Part::Activation(map(value)),
            Part::TokenIds(_) => self.clone(),
        }
    }
}

/// Returns the parts of `data`, in order.
pub fn parts_of<X: SegmentData>(data: &X) -> Vec<Part> {
    let mut parts = Vec::new();
    data.add_parts(&mut parts, Internal::new());
    parts
}

/// Returns the parts of the result of a recorded function, with their numbers computed.
pub(crate) fn computed_parts_of<X: SegmentData>(data: &X) -> Vec<Part> {
    let parts = parts_of(data);
    compute_activations(&parts);
    parts
}

/// Returns the data as it is behind a boundary, at which a segment or a stage may begin or end: operations that read it
/// are not fused with those that made it, and their gradients are summed before others of the same tensor are added. So
/// no bit depends on which boundaries a run uses.
pub fn at_boundary<X: SegmentData>(data: &X) -> X {
    let parts = parts_of(data).into_iter();
    data_of_parts(parts.map(|part| part.map_activation(|value| value.at_boundary(None))))
}

/// Returns the data as it is behind a [boundary](at_boundary) at which the model may be cut, if a stage is running.
pub fn at_stage_boundary<X: SegmentData>(data: &X) -> X {
    let (boundary, parts) = (RunningStage::boundary(), parts_of(data).into_iter());
    data_of_parts(parts.map(|part| part.map_activation(|value| value.at_boundary(boundary))))
}

/// Computes the numbers of all activations, if they were deferred.
#[track_caller]
pub(super) fn compute_activations(parts: &[Part]) {
    parts.iter().filter_map(Part::activation).for_each(|value| drop(value.compute()));
}

/// Creates data from its parts, in order.
pub fn data_of_parts<X: SegmentData>(parts: impl IntoIterator<Item = Part>) -> X {
    let mut parts = parts.into_iter();
    let mut next =
        || parts.next().unwrap_or_else(|| unreachable!("data has as many parts as kinds"));
    X::from_parts(&mut next, Internal::new())
}

#[diagnostic::do_not_recommend]
impl SegmentData for () {
    fn add_part_kinds(_: &mut Vec<PartKind>, _: Internal) {}

    fn add_parts(&self, _: &mut Vec<Part>, _: Internal) {}

    fn from_parts(_: &mut dyn FnMut() -> Part, _: Internal) {}
}

macro_rules! tuples {
    ($(($($item:ident),+))*) => {$(
        #[diagnostic::do_not_recommend]
        impl<$($item: SegmentData),+> SegmentData for ($($item,)+) {
            fn add_part_kinds(kinds: &mut Vec<PartKind>, internal: Internal) {
                $($item::add_part_kinds(kinds, internal);)+
            }

            #[allow(non_snake_case, reason = "the items are named as their types")]
            fn add_parts(&self, parts: &mut Vec<Part>, internal: Internal) {
                let ($($item,)+) = self;
                $($item.add_parts(parts, internal);)+
            }

            fn from_parts(next: &mut dyn FnMut() -> Part, internal: Internal) -> Self {
                ($($item::from_parts(next, internal),)+)
            }
        }
    )*};
}

tuples! { (A) (A, B) (A, B, C) (A, B, C, D) }
