//! Weights of the terms of losses, from the host.

use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;

use crate::autograd::Value;
use crate::context::{Rank, extents_of};
use crate::layout::{Dims, SameShape, Shape};
use meshwright_backend::ops::middle_dim::ReduceDimArgs;
use meshwright_backend::{Buffer, Category, DType, DimReduction, MiddleDim};
use meshwright_mesh::__internal::{check_sizes, global_sizes, local_len, shape_name};
use meshwright_mesh::Extent;

use super::block_by_index::block_by_index;
use super::row_range::{rows_of_block, rows_of_micro_batch};
use super::{
    AlwaysRecomputed, Count, InBackward, Operands, Operation, OperationBackward, OperationForward,
    OperationInput, Tensor, apply,
};

/// Weights of the terms of a loss shaped `S`, for [`Loss::weighted_mean`](super::Loss::weighted_mean): one f32 each, in
/// bf16 too, made from numbers of the host, as [`Targets`](super::Targets) are. They are finite and not negative.
pub struct Weights<S: Dims> {
    rank: Rank,
    extents: Vec<Extent>,
    data: Arc<Buffer>,
    total: f64,
    shape: PhantomData<S>,
}

impl<S: Dims> Weights<S> {
    /// Creates weights from this rank's block, row-major. `sizes` are the sizes of the **global** dims.
    ///
    /// # Panics
    /// If `block` has another number of elements than the rank's part of `sizes`, or a weight is negative, infinite or
    /// NaN.
    #[track_caller]
    pub fn from_block(rank: &Rank, sizes: &[usize], block: &[f32]) -> Weights<S>
    where
        S: Shape,
    {
        let extents = extents_of::<S>(rank, sizes);
        assert_eq!(
            block.len(),
            local_len(&extents),
            "a block of {} weights is not this rank's block of {sizes:?}",
            block.len()
        );
        Weights::declared(rank, extents, block)
    }

    /// Creates the weights of a micro-batch: `block` holds some of the rows of this rank's block, from row `first` on,
    /// as [`Targets::from_rows`](super::Tokens::from_rows).
    ///
    /// # Panics
    /// If `block` does not hold whole rows, or more than follow row `first`, or a weight is negative, infinite or NaN.
    #[track_caller]
    pub fn from_rows(rank: &Rank, sizes: &[usize], first: usize, block: &[f32]) -> Weights<S>
    where
        S: Shape,
    {
        let (rank, extents) = rows_of_block::<S>(rank, sizes, first, block.len(), "weights");
        Weights::declared(&rank, extents, block)
    }

    /// Creates the weights of micro-batch `index` of `count` of a global batch, from this rank's block of it: its rows,
    /// and of each its positions.
    ///
    /// # Panics
    /// If `block` has other rows than the micro-batch has on this rank, or a weight is negative, infinite or NaN.
    #[track_caller]
    pub fn from_micro_batch(
        rank: &Rank,
        sizes: &[usize],
        micro_batch: [usize; 2],
        block: &[f32],
    ) -> Weights<S>
    where
        S: Shape,
    {
        let (rank, extents) =
            rows_of_micro_batch::<S>(rank, sizes, micro_batch, block.len(), "weights");
        Weights::declared(&rank, extents, block)
    }

    /// Creates weights whose element at `index` of the **global** tensor is `weight(index)`: the same on every mesh. On
    /// the [rank](super::Tokens::rank) of a micro-batch's tokens they are those of its rows.
    ///
    /// # Panics
    /// If `sizes` has another length than `S`, another call of `weight` with the same index returns another number, or
    /// a weight is negative, infinite or NaN.
    #[track_caller]
    pub fn from_fn(rank: &Rank, sizes: &[usize], weight: impl Fn(&[usize]) -> f32) -> Weights<S>
    where
        S: Shape,
    {
        let extents = extents_of::<S>(rank, sizes);
        let block = block_by_index(&extents, weight, f32::to_bits);
        Weights::declared(rank, extents, &block)
    }

    #[track_caller]
    fn declared(rank: &Rank, extents: Vec<Extent>, block: &[f32]) -> Weights<S> {
        let name = || format!("weights shaped {}", shape_name(S::DIMS));
        rank.declared_values().note_elements(name, S::VARIES, Location::caller(), block);
        rank.segments().note_numbers(block);
        // A captured graph would keep the sum of the first step.
        rank.note_host_input();
        let total = if rank.leaves_out_numbers(block.len()) {
            block.len() as f64
        } else {
            let refused = block.iter().find(|weight| !weight.is_finite() || **weight < 0.0);
            if let Some(weight) = refused {
                panic!(
                    "a weight of a loss is {weight}: weights are finite and not negative; a factor of any sign \
                     multiplies the terms"
                );
            }
            block.iter().copied().map(f64::from).sum()
        };
        let data = Arc::new(rank.allocator().copy_of(block, Category::Activations));
        Weights { rank: rank.clone(), extents, data, total, shape: PhantomData }
    }

    /// Returns the sum of the weights of this rank's block; [`StepCount::of_weights`](super::StepCount::of_weights)
    /// takes that of all micro-batches, times the number of terms of this rank that have one weight, if the weights
    /// have fewer dims than the terms.
    pub fn total(&self) -> f64 {
        self.total
    }

    /// Returns the number of elements of each dim of the global tensor.
    pub fn sizes(&self) -> Vec<usize> {
        global_sizes(&self.extents)
    }

    /// Returns the rank that holds the block.
    pub fn rank(&self) -> &Rank {
        &self.rank
    }
}

impl<S: Dims> std::fmt::Debug for Weights<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Weights({}, {:?})", shape_name(S::DIMS), self.sizes())
    }
}

/// Returns the sum of the terms of this rank, each times its weight, in f32, and the sum of their weights.
#[track_caller]
pub(super) fn sum_with_weights<S, W>(terms: &Tensor<S>, weights: &Weights<W>) -> (Value, f64)
where
    S: Dims + SameShape<W>,
    W: Dims,
{
    const TERMS: &str = "the tensor of terms";
    const WEIGHTS: &str = "the tensor of their weights";
    let (rank, extents) = (terms.rank(), terms.local_extents());
    rank.check_same(&weights.rank);
    let (mut data, mut total) = (Arc::clone(&weights.data), weights.total);
    match <S as SameShape<W>>::RIGHT_PLACES {
        None => check_sizes(S::DIMS, (TERMS, extents), (WEIGHTS, &weights.extents)),
        Some(places) => {
            let common: Vec<Extent> = places.iter().map(|place| extents[*place]).collect();
            check_sizes(W::DIMS, (TERMS, &common), (WEIGHTS, &weights.extents));
            let narrow = Value::constant(rank, weights.extents.clone(), data);
            let wide = narrow.to_pointwise_along(places, extents);
            data = Value::deferred(rank, extents.to_vec(), wide).compute().data;
            total *= local_len(extents) as f64 / local_len(&common).max(1) as f64;
        }
    }
    let inputs = [OperationInput::new(terms.value(), InBackward::Ignores)];
    let operation = WeightedSumOperation { weights: data };
    let sum =
        apply(operation, Operands { rank, path: "", inputs, params: [], extents: Vec::new() });
    (sum, total)
}

/// The sum of terms with weights, whose backward reads the weights only.
struct WeightedSumOperation {
    weights: Arc<Buffer>,
}

impl Operation<Count<1>, Count<0>> for WeightedSumOperation {
    type Saved = AlwaysRecomputed<()>;

    fn forward(&self, forward: OperationForward<'_, Count<1>, Count<0>>) -> (Buffer, ()) {
        let OperationForward { rank, inputs: [x], .. } = forward;
        let x = x.compute().data;
        let (len, weights) = (x.len(), self.weights.view());
        let mut wide = None;
        if x.dtype() != DType::F32 {
            let mut terms = rank.alloc_scratch(DType::F32, len);
            rank.backend().cast(x.view(), terms.view_mut());
            wide = Some(terms);
        }
        let mut sum = rank.alloc_statistics(1);
        let args = ReduceDimArgs {
            x: wide.as_ref().unwrap_or(&x).view(),
            second: weights,
            column: None,
            scale: 1.0,
            y: sum.view_mut(),
        };
        let dim = MiddleDim { outer: 1, len, inner: 1 };
        rank.backend().reduce_dim(dim, DimReduction::DotSum, args);
        (sum, ())
    }

    fn backward(
        self,
        backward: OperationBackward<'_, '_, Count<1>, Count<0>>,
        _: AlwaysRecomputed<()>,
    ) {
        let OperationBackward { gradients, inputs: [x], gradient: seed, .. } = backward;
        let rank = gradients.rank;
        let factor = gradients.scalar_gradient(&seed);
        let len = self.weights.len();
        let mut dx = rank.alloc_activation(len);
        // The product of a weight and the seed is rounded once.
        let dim = MiddleDim { outer: len, len: 1, inner: 1 };
        rank.backend().broadcast_dim(dim, self.weights.view(), dx.view_mut(), factor);
        x.add_gradient(gradients, Arc::new(dx));
    }
}
