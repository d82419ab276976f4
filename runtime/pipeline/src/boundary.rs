//! The data that crosses from one stage to the next: its parts, and their extents on this rank.

use std::rc::Rc;
use std::sync::Arc;

use crate::schedule::{Message, MessageKind};
use meshwright_backend::Buffer;
use meshwright_core::__internal::Internal;
use meshwright_core::__internal::{PartGradients, TokenIds};
use meshwright_core::layout::DimInfo;
use meshwright_core::nn::Sizes;
use meshwright_core::tensor::{Part, PartKind, Rank, SegmentData};
use meshwright_mesh::__internal::{local_len, shape_name};
use meshwright_mesh::Extent;

use super::MessagePart;

/// The parts that cross from one stage to the next, with their extents for one input of the model.
///
/// Shapes at boundaries are static, and never sent. A dim of the model's input has its extent there, so that the rows
/// of a micro-batch stay the same; other dims have their extents by the model's sizes.
pub(super) struct BoundaryShape {
    parts: Vec<BoundaryPart>,
}

/// A part that crosses from one stage to the next.
enum BoundaryPart {
    Sent(PartKind, Vec<Extent>),
    /// The documents of these tokens, which the ranks of both stages have: they are tokens of the model's input.
    Documents(TokenIds),
}

impl BoundaryPart {
    fn sent_extents(&self) -> Option<(&PartKind, &Vec<Extent>)> {
        match self {
            BoundaryPart::Sent(kind, extents) => Some((kind, extents)),
            BoundaryPart::Documents(_) => None,
        }
    }
}

impl BoundaryShape {
    /// Creates the shape of a boundary with parts of these `kinds`, for an input of the model with the parts `input`,
    /// which are of `input_kinds`.
    ///
    /// # Panics
    /// If a dim is neither one of the input nor has a size, which [`dims_without_size`] finds; and if documents cross
    /// that no tokens of the input have, which [`documents_without_tokens`] finds.
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
        let part = |kind: &PartKind| match kind {
            PartKind::Documents(dims) => BoundaryPart::Documents(tokens_of_documents(
                dims,
                input_kinds.iter().zip(input_parts),
            )),
            _ => BoundaryPart::Sent(*kind, kind.dims().iter().map(extent).collect()),
        };
        BoundaryShape { parts: kinds.iter().map(part).collect() }
    }

    /// Returns the buffers of a message across the boundary, in order. Token ids have no gradient, and documents are
    /// not sent.
    pub fn message_parts(&self, rank: &Rank, kind: MessageKind) -> Vec<MessagePart> {
        let is_sent = |part: &PartKind| match kind {
            MessageKind::Activation => true,
            MessageKind::Gradient => matches!(part, PartKind::Activation(_)),
        };
        let sent = self
            .parts
            .iter()
            .filter_map(BoundaryPart::sent_extents)
            .filter(|(part, _)| is_sent(part));
        let part = |(part, extents): (&PartKind, &Vec<Extent>)| MessagePart {
            dtype: part.dtype(rank),
            len: local_len(extents),
        };
        sent.map(part).collect()
    }

    /// Returns the buffers of the output of a stage, as they are sent.
    ///
    /// # Panics
    /// If the output has documents that the next stage would take from other tokens.
    pub fn buffers_of_parts(&self, output: &[Part]) -> Vec<Arc<Buffer>> {
        assert_eq!(self.parts.len(), output.len(), "the parts of a boundary");
        for (part, output) in self.parts.iter().zip(output) {
            if let (BoundaryPart::Documents(tokens), Part::Documents(own)) = (part, output) {
                let [known, own] =
                    [tokens, own].map(|ids| ids.documents().several().map(Rc::as_ptr));
                assert!(
                    known == own,
                    "documents that cross from one pipeline stage to the next must belong to the tokens that the model \
                     takes, its first ones of this shape: the next stage has read these, and nothing is sent"
                );
            }
        }
        output.iter().filter_map(Part::buffer).collect()
    }

    /// Creates the input of a stage from the buffers of a message. `rank` refers to the micro-batch.
    pub fn parts_of_buffers(&self, rank: &Rank, buffers: Vec<Arc<Buffer>>) -> Vec<Part> {
        let mut buffers = buffers.into_iter();
        let part = |part: &BoundaryPart| match part {
            BoundaryPart::Sent(kind, extents) => {
                let buffer = buffers.next().expect("a message has the buffers of its parts");
                kind.part_of_buffer(rank, extents.clone(), buffer)
            }
            BoundaryPart::Documents(tokens) => Part::Documents(tokens.clone()),
        };
        self.parts.iter().map(part).collect()
    }

    /// Returns the gradient of each part from the buffers of a message: `None` for token ids and documents.
    pub fn gradients_of_buffers(&self, buffers: Vec<Arc<Buffer>>) -> PartGradients {
        let mut buffers = buffers.into_iter();
        let gradient = |part: &BoundaryPart| match part {
            BoundaryPart::Sent(PartKind::Activation(_), _) => buffers.next(),
            _ => None,
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

/// Returns the dims of documents at a boundary that belong to no tokens of the model's input: the next stage has no
/// others.
pub(super) fn documents_without_tokens(
    kinds: &[PartKind],
    input_kinds: &[PartKind],
) -> Vec<&'static [DimInfo]> {
    let has_tokens = |dims: &[DimInfo]| {
        let mut inputs = input_kinds.iter();
        inputs.any(|kind| matches!(kind, PartKind::TokenIds(own) if are_same(own, dims)))
    };
    let documents = kinds.iter().filter_map(|kind| match kind {
        PartKind::Documents(dims) => Some(*dims),
        _ => None,
    });
    documents.filter(|dims| !has_tokens(dims)).collect()
}

fn are_same(own: &[DimInfo], dims: &[DimInfo]) -> bool {
    own.len() == dims.len() && own.iter().zip(dims).all(|(own, dim)| own.is_same_dim(dim))
}

/// Returns the first tokens of a model's input with these dims, whose documents cross between stages.
///
/// # Panics
/// If the input has no such tokens, which [`documents_without_tokens`] finds.
fn tokens_of_documents<'a>(
    dims: &'static [DimInfo],
    mut input: impl Iterator<Item = (&'a PartKind, &'a Part)>,
) -> TokenIds {
    let found = input.find_map(|(kind, part)| match part {
        Part::TokenIds(ids) if are_same(kind.dims(), dims) => Some(ids.clone()),
        _ => None,
    });
    found.unwrap_or_else(|| {
        panic!(
            "documents shaped {} cross from one pipeline stage to the next, but the model takes no tokens of this \
             shape",
            shape_name(dims)
        )
    })
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
