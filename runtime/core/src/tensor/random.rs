//! Random tensors that are the same on every mesh: each number is drawn by the index of its element.

use std::panic::Location;

use crate::autograd::{Unary, Value};
use crate::context::{Rank, block_index, extents_of};
use crate::layout::{AxisSet, Dims, Shape};
use crate::random;
use meshwright_backend::{DType, UnaryFunction};
use meshwright_mesh::__internal::local_len;

use super::Tensor;
use super::draw_key::draw_key;

impl<S: Dims> Tensor<S> {
    /// Creates normally distributed numbers of mean 0 and standard deviation 1. Each follows from the seed of the run,
    /// `name`, the training step and the index of its element in the **global** tensor, so the noise is the same on
    /// every mesh, in every micro-batch, and when a segment is recomputed. Tensors with different names are
    /// independent.
    ///
    /// ```
    /// # use meshwright::prelude::*;
    /// # dims! { Batch @ data, Seq, Hidden }
    /// type Stream = Tensor<(Batch, Seq, Hidden)>;
    ///
    /// fn noisy(x: &Stream) -> Stream {
    ///     x + Stream::normal(x.rank(), &x.sizes(), "input noise") * 0.1
    /// }
    /// ```
    ///
    /// No gradient flows into it.
    ///
    /// # Panics
    /// If `sizes` has another length than `S`.
    #[track_caller]
    pub fn normal(rank: &Rank, sizes: &[usize], name: &str) -> Tensor<S>
    where
        S: Shape,
    {
        note_name(rank, name);
        drawn(rank, sizes, &format!("normal {name}"))
    }

    /// Creates uniformly distributed numbers in (0, 1], each drawn by the index of its element, as
    /// [`normal`](Self::normal) does.
    ///
    /// # Panics
    /// If `sizes` has another length than `S`.
    #[track_caller]
    pub fn uniform(rank: &Rank, sizes: &[usize], name: &str) -> Tensor<S>
    where
        S: Shape,
    {
        note_name(rank, name);
        // The squares of two normal deviates have the sum -2 ln(u), for a uniform u (Box and Muller, 1958).
        let square_of = |which: &str| {
            drawn::<S>(rank, sizes, &format!("uniform {which} {name}"))
                .apply_unary(Unary::Apply(UnaryFunction::Square))
        };
        let sum = square_of("first") + square_of("second");
        sum.apply_unary(Unary::Scale(-0.5)).apply_unary(Unary::Apply(UnaryFunction::Exp))
    }
}

/// Draws normal deviates by a key of the seed, `name` and the step.
fn drawn<S: Shape>(rank: &Rank, sizes: &[usize], name: &str) -> Tensor<S> {
    let extents = extents_of::<S>(rank, sizes);
    let key = draw_key(rank, name);
    let len = local_len(&extents);
    let mut numbers = rank.alloc_scratch(DType::F32, len);
    rank.backend().fill_normal(key, 1.0, &block_index(&extents), numbers.view_mut());
    let mut data = rank.alloc_activation(len);
    rank.backend().cast(numbers.view(), data.view_mut());
    Tensor::from_untyped(Value::constant(rank, extents, data))
}

/// Records the name, which is the same on all ranks.
#[track_caller]
fn note_name(rank: &Rank, name: &str) {
    let what = || "the name of random numbers".to_owned();
    let hash = random::key(0, name);
    let words = [(hash >> 32) as u32, hash as u32];
    rank.declared_values().note_elements(what, AxisSet::NONE, Location::caller(), &words);
}
