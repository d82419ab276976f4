//! Sharding styles, as types.

use std::marker::PhantomData;

use crate::layout::{Axis, Dims, ScatterLast, Seal, Whole, With};

/// Not sharded: every rank holds all of the layer.
#[derive(Debug, Clone, Copy)]
pub struct Plain;

/// Column-parallel over `A`: what the layer writes is split.
#[derive(Debug, Clone, Copy)]
pub struct Col<A>(PhantomData<A>);

/// Row-parallel over `A`: what the layer reads is split, and its results are summed as `End` says.
#[derive(Debug, Clone, Copy)]
pub struct Row<A, End = AllReduce>(PhantomData<(A, End)>);

/// The vocabulary is split over `A`; results are summed as `End` says.
#[derive(Debug, Clone, Copy)]
pub struct VocabSplit<A, End = AllReduce>(PhantomData<(A, End)>);

/// A region ends with the sum on every rank.
#[derive(Debug, Clone, Copy)]
pub struct AllReduce;

/// A region ends with the sum split along dim `D`, as a sequence-parallel stream wants it.
#[derive(Debug, Clone, Copy)]
pub struct Scatter<D>(PhantomData<D>);

/// How a region over `A` ends: with which lead dims, in front of what the region wrote.
#[diagnostic::on_unimplemented(
    message = "the result of this layer cannot be scattered: `{Self}`",
    label = "its lead dims are `{Lead}`",
    note = "`scatter = Dim` names the last of the lead dims, whole: `scatter = Seq` for a stream shaped `(Batch, Seq, Hidden)`"
)]
pub trait End<Lead, F, A> {
    /// The shape of the result.
    type Out: Dims;
    /// The dim that is scattered, or none where the sum is kept on every rank.
    const SCATTER: Option<usize>;
    #[doc(hidden)]
    const SEAL: Seal;
}

#[diagnostic::do_not_recommend]
impl<Lead: With<F>, F, A: Axis> End<Lead, F, A> for AllReduce {
    type Out = Lead::Out;
    const SCATTER: Option<usize> = None;
    const SEAL: Seal = Seal::new();
}

#[diagnostic::do_not_recommend]
impl<Lead: ScatterLast<D, A>, F, D: Whole, A: Axis> End<Lead, F, A> for Scatter<D>
where
    Lead::Out: With<F>,
{
    type Out = <Lead::Out as With<F>>::Out;
    const SCATTER: Option<usize> = Some(Lead::DIM);
    const SEAL: Seal = Seal::new();
}
