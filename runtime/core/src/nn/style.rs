//! Sharding styles of layers, as types.

use std::marker::PhantomData;

use crate::layout::{Axis, Dims, ScatterLast, Seal, Whole, With};

/// The style of a layer that is not sharded: every rank holds all of it.
#[derive(Debug, Clone, Copy)]
pub struct Plain;

/// Column-parallel over `A`: the output of the layer is split.
#[derive(Debug, Clone, Copy)]
pub struct Col<A>(PhantomData<A>);

/// Row-parallel over `A`: the input of the layer is split, and `Exit` reduces its partial sums.
#[derive(Debug, Clone, Copy)]
pub struct Row<A, Exit = AllReduce>(PhantomData<(A, Exit)>);

/// Vocabulary-parallel over `A`: `Exit` reduces the partial sums.
#[derive(Debug, Clone, Copy)]
pub struct VocabSplit<A, Exit = AllReduce>(PhantomData<(A, Exit)>);

/// Split over the ranks of the axes `A`; each rank has whole experts.
#[derive(Debug, Clone, Copy)]
pub struct ByExpert<A>(PhantomData<A>);

/// Leaves a region by an all-reduce: every rank has the sum.
#[derive(Debug, Clone, Copy)]
pub struct AllReduce;

/// Leaves a region by a reduce-scatter along dim `D`, into a sequence-parallel stream.
#[derive(Debug, Clone, Copy)]
pub struct Scatter<D>(PhantomData<D>);

/// The exit from a tensor-parallel region over `A`: the reduction, and the shape of its result from the lead dims and
/// the feature `F` that the region computed.
#[diagnostic::on_unimplemented(
    message = "the result of this layer cannot be scattered: `{Self}`",
    label = "its lead dims are `{Lead}`",
    note = "`scatter = Dim` names the last of the lead dims, whole: `scatter = Seq` for a stream shaped `(Batch, Seq, \
            Hidden)`"
)]
pub trait RegionExit<Lead, F, A> {
    /// The shape of the result.
    type Out: Dims;
    /// The dim that is scattered; `None` if every rank has the sum.
    const SCATTER: Option<usize>;
    #[doc(hidden)]
    const SEAL: Seal;
}

#[diagnostic::do_not_recommend]
impl<Lead: With<F>, F, A: Axis> RegionExit<Lead, F, A> for AllReduce {
    type Out = Lead::Out;
    const SCATTER: Option<usize> = None;
    const SEAL: Seal = Seal::new();
}

#[diagnostic::do_not_recommend]
impl<Lead: ScatterLast<D, A>, F, D: Whole, A: Axis> RegionExit<Lead, F, A> for Scatter<D>
where
    Lead::Out: With<F>,
{
    type Out = <Lead::Out as With<F>>::Out;
    const SCATTER: Option<usize> = Some(Lead::DIM);
    const SEAL: Seal = Seal::new();
}
