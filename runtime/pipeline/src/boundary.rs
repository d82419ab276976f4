//! The data that crosses from one stage to the next: its parts, and their extents on this rank.

use std::sync::Arc;

use crate::schedule::{Message, MessageKind};
use meshwright_backend::Buffer;
use meshwright_core::__internal::Internal;
use meshwright_core::__internal::PartGradients;
use meshwright_core::layout::DimInfo;
use meshwright_core::nn::Sizes;
use meshwright_core::tensor::{Part, PartKind, Rank, SegmentData};
use meshwright_mesh::__internal::local_len;
use meshwright_mesh::Extent;

use super::MessagePart;

/// The parts that cross from one stage to the next, with their extents for one input of the model.
///
/// Shapes at boundaries are static, and never sent. A dim of the model's input has its extent there, so that the rows
/// of a micro-batch stay the same; other dims have their extents by the model's sizes.
pub(super) struct BoundaryShape {
    /// The rank of the model's input, which refers to its micro-batch and its documents.
    rank: Rank,
    parts: Vec<(PartKind, Vec<Extent>)>,
}

impl BoundaryShape {
    /// Creates the shape of a boundary with parts of these `kinds`, for an input of the model with the parts `input`,
    /// which are of `input_kinds`.
    ///
    /// # Panics
    /// If a dim is neither one of the input nor has a size, which [`dims_without_size`] finds.
    pub fn new(
        rank: &Rank,
        kinds: &[PartKind],
        (input_kinds, input_parts): (&[PartKind], &[Part]),
        sizes: &Sizes,
    ) -> BoundaryShape {
        let dims = |(kind, part): (&PartKind, &Part)| {
            let extents = part.extents().to_vec();
            kind.dims().iter().copied().zip(extents).collect::<Vec<_>>()
        };
        let input: Vec<(DimInfo, Extent)> =
            input_kinds.iter().zip(input_parts).flat_map(dims).collect();
        let extent = |dim: &DimInfo| {
            let of_sizes = || Some(rank.local_extent(dim, sizes.dim_size(dim)?));
            let extent = input_extent(rank, dim, &input).or_else(of_sizes);
            extent.unwrap_or_else(|| panic!("the dim {dim} of a stage boundary has no size"))
        };
        let part = |kind: &PartKind| (*kind, kind.dims().iter().map(extent).collect());
        BoundaryShape { rank: rank.clone(), parts: kinds.iter().map(part).collect() }
    }

    /// Returns the buffers of a message across the boundary, in order. Token ids have no gradient.
    pub fn message_parts(&self, rank: &Rank, kind: MessageKind) -> Vec<MessagePart> {
        let is_sent = |part: &PartKind| match kind {
            MessageKind::Activation => true,
            MessageKind::Gradient => matches!(part, PartKind::Activation(_)),
        };
        let sent = self.parts.iter().filter(|(kind, _)| is_sent(kind));
        let part = |(kind, extents): &(PartKind, Vec<Extent>)| MessagePart {
            dtype: kind.dtype(rank),
            len: local_len(extents),
        };
        sent.map(part).collect()
    }

    /// Returns the buffers of the output of a stage, as they are sent.
    ///
    /// # Panics
    /// If the output has other documents in its rows than the input of the model.
    pub fn buffers_of_parts(&self, output: &[Part]) -> Vec<Arc<Buffer>> {
        assert_eq!(self.parts.len(), output.len(), "the parts of a boundary");
        for ((kind, _), part) in self.parts.iter().zip(output) {
            assert!(
                part.rank().agrees_on_documents(&self.rank, kind.dims()),
                "what crosses from one pipeline stage to the next must have the documents of the tokens that the model \
                 takes: the next stage has these, and documents are not sent; set them by `with_documents` on the \
                 input of the model, the same for all of its tokens with the dims of these rows"
            );
        }
        output.iter().map(Part::buffer).collect()
    }

    /// Creates the input of a stage from the buffers of a message.
    pub fn parts_of_buffers(&self, buffers: Vec<Arc<Buffer>>) -> Vec<Part> {
        assert_eq!(self.parts.len(), buffers.len(), "a message has the buffers of its parts");
        let parts = self.parts.iter().zip(buffers);
        let part = |((kind, extents), buffer): (&(PartKind, Vec<Extent>), _)| {
            kind.part_of_buffer(&self.rank, extents.clone(), buffer)
        };
        parts.map(part).collect()
    }

    /// Returns the gradient of each part from the buffers of a message: `None` for token ids.
    pub fn gradients_of_buffers(&self, buffers: Vec<Arc<Buffer>>) -> PartGradients {
        let mut buffers = buffers.into_iter();
        let gradient = |(kind, _): &(PartKind, _)| match kind {
            PartKind::Activation(_) => buffers.next(),
            PartKind::TokenIds(_) => None,
        };
        self.parts.iter().map(gradient).collect()
    }
}

/// Returns the kinds of the parts of an `X`.
pub(super) fn kinds_of<X: SegmentData>() -> Vec<PartKind> {
    let mut kinds = Vec::new();
    X::add_part_kinds(&mut kinds, Internal::new());
    kinds
}

/// Returns the boundary of a message by the stage that computes its activation.
pub(super) fn boundary_of(message: Message) -> usize {
    message.from_stage().min(message.to_stage())
}

/// Returns the dims of a boundary that have no extent: they are not dims of the model's input, and have no size.
pub(super) fn dims_without_size(
    kinds: &[PartKind],
    input_kinds: &[PartKind],
    sizes: &Sizes,
) -> Vec<&'static DimInfo> {
    let has_extent = |dim: &DimInfo| {
        let mut of_input = input_kinds.iter().flat_map(|kind| kind.dims());
        of_input.any(|other| (other.key)() == (dim.key)()) || sizes.dim_size(dim).is_some()
    };
    let dims = kinds.iter().flat_map(|kind| kind.dims());
    let mut found: Vec<_> = dims.filter(|dim| !has_extent(dim)).collect();
    found.dedup_by_key(|dim| dim.name);
    found
}

/// Returns the extent of `dim` if the input has it, split as `dim` is.
fn input_extent(rank: &Rank, dim: &DimInfo, input: &[(DimInfo, Extent)]) -> Option<Extent> {
    let same = |(other, _): &&(DimInfo, Extent)| (other.key)() == (dim.key)();
    let (other, extent) = input.iter().find(same)?;
    if other.split == dim.split {
        return Some(*extent);
    }
    let whole = extent.unsplit();
    Some(whole.split(rank.position(dim.split), rank.degree_of(dim.split)))
}
