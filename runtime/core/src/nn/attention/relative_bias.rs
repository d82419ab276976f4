//! Learned biases by buckets of relative positions, as in T5.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::layout::{Axis, AxisSet, Dim, Dims, ModelAxis, OnEveryRank, Seal, Split, Whole};
use crate::tensor::{InBackward, Init, OperationParam, Param, ParamRef, Rank, gradient_axes};

use super::super::{Build, Builder, Col, Plain, Shard};
use super::extras::{AttentionExtra, BiasOfScores, Extras, SameHeads, SameSequence};
use super::options::AttentionOptions;
use super::score_bias::{BucketOfDistance, Distances, ScoreBias};
use crate::nn::debug::debug_layers;

/// A learned bias on the scores of each head by the bucket of the distance between key and query (Raffel et al. 2020,
/// "T5"), an optional operand of attention. The size of `N` is the number of buckets.
///
/// Shape: a bias on scores `[batch, H, sequence, keys]`; `weight[N, H]`.
///
/// Half of the buckets have single distances, the others grow logarithmically up to
/// [`max_distance`](crate::nn::AttentionOptions::max_distance). A causal attention uses all buckets for the positions
/// before that of the query, a bidirectional one half of them for the positions after it.
///
/// `#[sharded(tp = "col")]` splits the heads like the queries' heads. One field can be the bias of all layers.
pub struct RelativeBias<N, H, Style = Plain> {
    weight: ParamRef,
    max_distance: usize,
    buckets: RefCell<Option<(bool, Arc<BucketOfDistance>)>>,
    kind: PhantomData<(N, H, Style)>,
}

impl<N, H, Style> RelativeBias<N, H, Style> {
    fn new<S: Dims>(builder: &mut Builder<'_>) -> Self
    where
        N: Dim,
    {
        let buckets = builder.size::<N>();
        let options = builder.attention_options();
        let max_distance = options.max_distance;
        let of_attention = |options: &AttentionOptions| {
            let AttentionOptions { windows, soft_cap, scale, dropout, .. } = options;
            (windows.clone(), *soft_cap, *scale, *dropout)
        };
        let unset = [&builder.sizes().attention, &AttentionOptions::default()].map(of_attention);
        if !unset.contains(&of_attention(options)) {
            builder.problem(format_args!(
                "a window, soft cap, scale or dropout rate applies to nothing: it is that of an attention, whose own \
                 field `Sizes::with_attention` takes; a bias has a maximum distance"
            ));
        }
        if buckets < 4 || !buckets.is_multiple_of(2) {
            builder.problem(format_args!(
                "{} = {buckets} buckets, but relative positions need an even number of at least 4",
                N::NAME
            ));
        } else if max_distance <= buckets / 2 {
            builder.problem(format_args!(
                "a maximum distance of {max_distance} is not more than the {} distances that have buckets of their \
                 own, of {} = {buckets}: set `AttentionOptions::max_distance`",
                buckets / 2,
                N::NAME
            ));
        }
        let std = builder.sizes().init_std;
        let weight: Param<S> = builder.table("weight", Init::Normal(std));
        RelativeBias {
            weight: weight.handle().clone(),
            max_distance,
            buckets: RefCell::default(),
            kind: PhantomData,
        }
    }

    /// Adds the bias, whose weight has a gradient that is partial over `gradient_axes`.
    #[track_caller]
    fn add_weight<'a>(&'a self, extras: &mut Extras<'a>, gradient_axes: AxisSet) {
        let in_backward = InBackward::Reads;
        let weight = OperationParam { param: &self.weight, gradient_axes, in_backward };
        extras.check_heads(&weight, 1);
        let distances = extras.distances(self.max_distance);
        let buckets = self.buckets(extras.rank, extras.is_causal, distances);
        extras.bias = Some(ScoreBias::Learned(weight, buckets));
    }

    /// Returns the buckets of distances, which are cached until the mask or the distances change.
    fn buckets(&self, rank: &Rank, is_causal: bool, distances: Distances) -> Arc<BucketOfDistance> {
        let mut cached = self.buckets.borrow_mut();
        if let Some((causal, buckets)) = cached.as_ref()
            && *causal == is_causal
            && buckets.distances == distances
        {
            return Arc::clone(buckets);
        }
        let count = self.weight.local_extents()[0].local;
        let bucket = |distance| bucket(distance, is_causal, count, self.max_distance);
        let buckets = Arc::new(BucketOfDistance::new(rank, count, distances, bucket));
        cached.replace((is_causal, Arc::clone(&buckets)));
        buckets
    }
}

/// Returns the bucket of a key `distance` positions after its query, as `_relative_position_bucket` of T5 in
/// transformers does, in f32 like it.
fn bucket(distance: isize, is_causal: bool, buckets: usize, max_distance: usize) -> usize {
    let (first, buckets, distance) = match (is_causal, distance > 0) {
        (true, true) => (0, buckets, 0),
        (true, false) => (0, buckets, distance.unsigned_abs()),
        (false, is_after) => {
            (if is_after { buckets / 2 } else { 0 }, buckets / 2, distance.unsigned_abs())
        }
    };
    let exact = buckets / 2;
    if distance < exact {
        return first + distance;
    }
    let log = (distance as f32 / exact as f32).ln();
    let log_of_max = (max_distance as f64 / exact as f64).ln() as f32;
    let steps = (log / log_of_max * (buckets - exact) as f32) as usize;
    first + (exact + steps).min(buckets - 1)
}

impl<N: Whole, H: Whole> Build for RelativeBias<N, H, Plain>
where
    N::Home: OnEveryRank<N>,
    H::Home: OnEveryRank<H>,
{
    fn build(builder: &mut Builder<'_>) -> Self {
        RelativeBias::new::<(N, H)>(builder)
    }
}

impl<N: Whole, H: Whole, A: ModelAxis> Build for RelativeBias<N, H, Col<A>>
where
    N::Home: OnEveryRank<N>,
    H::Home: OnEveryRank<H>,
{
    fn build(builder: &mut Builder<'_>) -> Self {
        RelativeBias::new::<(N, Split<H, A>)>(builder)
    }
}

#[diagnostic::do_not_recommend]
impl<N, H, A> Shard<Col<A>> for RelativeBias<N, H> {
    type Sharded = RelativeBias<N, H, Col<A>>;
}

impl<N: Whole, H: Whole, B, S, Heads, D, C, T, K, E> AttentionExtra<(B, S, Heads, D), (C, T, K, E)>
    for RelativeBias<N, H>
where
    (B, S, Heads, D): Dims,
    Heads: SameHeads<H, RelativeBias<N, H>>,
    T: SameSequence<S, RelativeBias<N, H>>,
{
    type First = BiasOfScores;
    type Last = BiasOfScores;
    const SEAL: Seal = Seal::new();

    #[track_caller]
    fn add_to_extras<'a>(&'a self, extras: &mut Extras<'a>) {
        let varies = <(B, S, Heads, D)>::VARIES;
        self.add_weight(extras, gradient_axes(varies, varies, <(N, H)>::VARIES));
    }
}

impl<N: Whole, H: Whole, A: Axis, B, S, Heads, D, C, T, K, E>
    AttentionExtra<(B, S, Heads, D), (C, T, K, E)> for RelativeBias<N, H, Col<A>>
where
    (B, S, Heads, D): Dims,
    Heads: SameHeads<Split<H, A>, RelativeBias<N, H, Col<A>>>,
    T: SameSequence<S, RelativeBias<N, H, Col<A>>>,
{
    type First = BiasOfScores;
    type Last = BiasOfScores;
    const SEAL: Seal = Seal::new();

    #[track_caller]
    fn add_to_extras<'a>(&'a self, extras: &mut Extras<'a>) {
        let varies = <(B, S, Heads, D)>::VARIES;
        self.add_weight(extras, gradient_axes(varies, varies, <(N, Split<H, A>)>::VARIES));
    }
}

debug_layers! {
    RelativeBias<N, H, Style>: weight;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Buckets of distances -140 to 140 by `T5Attention._relative_position_bucket`, as the distances at which they
    /// change.
    #[test]
    fn buckets_change_at_the_distances_of_t5() {
        let changes = |is_causal| {
            let bucket = |distance| bucket(distance, is_causal, 32, 128);
            let begins = (-139..=140).filter(|at| bucket(*at) != bucket(*at - 1));
            begins.map(|at| (at, bucket(at))).collect::<Vec<_>>()
        };
        assert_eq!(bucket(-140, false, 32, 128), 15);
        assert_eq!(bucket(-140, true, 32, 128), 31);
        let before = [(-90, 14), (-63, 13), (-45, 12), (-31, 11), (-22, 10), (-15, 9), (-11, 8)];
        let near: Vec<_> = (-7..=0).map(|at: isize| (at, at.unsigned_abs())).collect();
        let near_after: Vec<_> = (1..8).map(|at| (at, 16 + at as usize)).collect();
        let after = [(8, 24), (12, 25), (16, 26), (23, 27), (32, 28), (46, 29), (64, 30), (91, 31)];
        let all = [&before[..], &near, &near_after, &after].concat();
        assert_eq!(changes(false), all);
        assert!(changes(true).iter().all(|(at, _)| *at <= 0));
    }
}
