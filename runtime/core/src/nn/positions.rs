//! Learned positions.

use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

use crate::layout::{Axis, AxisSet, Dim, Dims, Ends, OnEveryRank, Seal, Split, Whole, With};
use crate::tensor::{
    DocumentIds, Documents, Extent, Init, Operand, Param, ParamRef, Rank, Tensor, Tokens,
    gradient_axes,
};
use meshwright_backend::{BlockCopy, Buffer, Category, DType};

use super::chain::stage_layers;
use super::debug::debug_layers;
use super::embedding::{look_up_ids, look_up_rows};
use super::{Build, Builder, Layer};

/// Adds a learned row of `H` for each position of the sequence, the dim before `H`.
///
/// Shape: `[.., sequence, H] -> [.., sequence, H]`; `weight[P, H]`.
///
/// Sequences may be shorter than the `P` positions of the table. If the stream is split along the sequence, each rank
/// adds the rows of its own shard, from a table that is whole on all of them. Positions restart with each document.
pub struct LearnedPositions<P, H> {
    weight: ParamRef,
    kind: PhantomData<(P, H)>,
}

/// Computes `x[.., position, :] + weight[position - start, :]`, where the document of a token begins at `start`: 0, or
/// with several documents in the rows of `x`, the first position of its document.
///
/// # Panics
/// If the sequence is longer than the table.
impl<P, H, S: SequenceInput<H>, T: Operand<Shape = S>> Layer<T> for LearnedPositions<P, H> {
    type Out = Tensor<S>;

    #[track_caller]
    fn forward(&self, x: &T) -> Self::Out {
        let x = x.operand();
        let rank = x.value().rank();
        let (_, rows) = S::DIMS.split_last().expect("an activation has a feature");
        let documents = rank.documents_of(rows);
        if documents.is_some() {
            rank.note_use_of_documents();
        }
        self.add_rows(x, documents)
    }
}

impl<P, H> LearnedPositions<P, H> {
    /// Computes the layer with `documents` that the model computes.
    ///
    /// # Panics
    /// If the sequence is longer than the table, or `documents` belong to another micro-batch.
    #[track_caller]
    pub fn forward_in<T: Operand, D: Dims>(
        &self,
        x: &T,
        documents: &Documents<D>,
    ) -> Tensor<T::Shape>
    where
        T::Shape: DocumentsInput<H, D>,
    {
        let x = x.operand();
        x.value().rank().check_same(documents.rank());
        self.add_rows(x, documents.ids())
    }

    #[track_caller]
    fn add_rows<S: SequenceInput<H>>(
        &self,
        x: &Tensor<S>,
        documents: Option<&Rc<DocumentIds>>,
    ) -> Tensor<S> {
        let (rank, lead) = (x.value().rank(), self.lead(x));
        let axes = gradient_axes(S::VARIES, S::VARIES, AxisSet::NONE);
        let rows = match documents {
            None => {
                let places = Tokens::<S::Tokens>::token_positions(rank, lead);
                look_up_rows(&places, (&self.weight, None), axes)
            }
            Some(documents) => {
                let ids = part_of_rows(rank, &documents.places, &documents.extents, lead);
                look_up_ids(rank, ids, lead, (&self.weight, None), axes)
            }
        };
        x + Tensor::from_untyped(rows)
    }

    /// Returns the extents of the tokens of `x`, after a check that the table has their positions.
    #[track_caller]
    fn lead<'a, S: Dims>(&self, x: &'a Tensor<S>) -> &'a [Extent] {
        let (_, lead) = x.value().extents().split_last().expect("an activation has a feature");
        let sequence = lead.last().expect("an activation has a sequence");
        let table = self.weight.local_extents()[0];
        assert!(
            sequence.global <= table.global,
            "`{}` has {} positions, and is used on sequences of {}",
            self.weight.path(),
            table.global,
            sequence.global
        );
        lead
    }
}

/// Returns the part `lead` of a block of the positions that a rank has of the rows of `documents`.
#[track_caller]
pub(super) fn part_of_rows(
    rank: &Rank,
    block: &Arc<Buffer>,
    documents: &[Extent],
    lead: &[Extent],
) -> Arc<Buffer> {
    let ([rows, sequence], [own_rows, whole]) = ([lead[0], lead[1]], [documents[0], documents[1]]);
    assert!(
        rows == own_rows && sequence.unsplit() == whole,
        "documents of {} rows of {} tokens, from row {} on, do not belong to an activation of {} rows of {}, from row \
         {} on: take the documents of the tokens that it is computed from",
        own_rows.local,
        whole.global,
        own_rows.offset,
        rows.local,
        sequence.global,
        rows.offset
    );
    if sequence == whole {
        return Arc::clone(block);
    }
    let len = rows.local * sequence.local;
    let mut part = rank.allocator().alloc(DType::U32, len, Category::Activations);
    let copy = BlockCopy {
        blocks: rows.local,
        len: sequence.local,
        src_start: whole.count_before(sequence.offset),
        src_stride: whole.local,
        dst_start: 0,
        dst_stride: sequence.local,
    };
    rank.backend().copy_blocks(&copy, block.view(), part.view_mut());
    Arc::new(part)
}

/// Shapes of activations whose last two dims are a sequence and `H`.
#[diagnostic::on_unimplemented(
    message = "positions of width `{H}` cannot be added to an activation shaped `{Self}`",
    label = "it must end in a sequence and a whole `{H}`"
)]
pub trait SequenceInput<H>: Dims {
    /// The shape of the tokens.
    type Tokens: Dims;
    #[doc(hidden)]
    const SEAL: Seal;
}

#[diagnostic::do_not_recommend]
impl<X: Ends<H>, H: Whole> SequenceInput<H> for X
where
    X::Lead: Dims + With<H>,
{
    type Tokens = X::Lead;
    const SEAL: Seal = Seal::new();
}

/// Activations of rows and a sequence whose documents are shaped `D`; the activation may hold a part of the sequence.
#[diagnostic::on_unimplemented(
    message = "an activation shaped `{Self}` has no documents shaped `{D}`",
    label = "the activation must have the rows and the sequence of the documents, and a whole `{H}`",
    note = "`tokens.documents()` returns the documents of the tokens that the activation is computed from"
)]
pub trait DocumentsInput<H, D>: SequenceInput<H> {
    #[doc(hidden)]
    const SEAL_OF_DOCUMENTS: Seal;
}

#[diagnostic::do_not_recommend]
impl<B: Dim, S: Dim + Whole, H: Whole> DocumentsInput<H, (B, S)> for (B, S, H)
where
    (B, S, H): SequenceInput<H>,
{
    const SEAL_OF_DOCUMENTS: Seal = Seal::new();
}

#[diagnostic::do_not_recommend]
impl<B: Dim, S: Dim + Whole, A: Axis, H: Whole> DocumentsInput<H, (B, S)> for (B, Split<S, A>, H)
where
    (B, Split<S, A>, H): SequenceInput<H>,
{
    const SEAL_OF_DOCUMENTS: Seal = Seal::new();
}

impl<P: Whole, H: Whole> Build for LearnedPositions<P, H>
where
    P::Home: OnEveryRank<P>,
    H::Home: OnEveryRank<H>,
{
    fn build(builder: &mut Builder<'_>) -> Self {
        let std = builder.sizes().init_std;
        let weight: Param<(P, H)> = builder.table("weight", Init::Normal(std));
        LearnedPositions { weight: weight.handle().clone(), kind: PhantomData }
    }
}

stage_layers! {
    LearnedPositions<P, H>;
}

debug_layers! {
    LearnedPositions<P, H>: weight;
}
