//! ALiBi: attention with linear biases.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::layout::{Axis, Dim, OnEveryRank, Seal, Split, Whole};
use crate::tensor::{Extent, Rank};
use meshwright_backend::{Buffer, Category};

use super::super::{Build, Builder};
use super::extras::{AttentionExtra, BiasOfScores, Extras, SameSequence};
use super::score_bias::{Distances, ScoreBias};
use crate::nn::debug::debug_layers;

/// The bias `-m * |i - j|` on the score of query `i` and key `j` in each of `H` heads (Press et al. 2022), an optional
/// operand of attention: `core.forward(&(q, k, v, &self.alibi))`.
///
/// Shape: a bias on scores `[batch, H, sequence, keys]`.
///
/// The slope `m` of head `h` of `n` is `2^(-8 (h + 1) / n)`, if `n` is a power of two; else the first heads have the
/// slopes of the next lower power of two, and the others every second slope of the next higher one, as in BLOOM. It has
/// no parameters, so it needs no sharding: each rank has the slopes of its heads.
pub struct Alibi<H> {
    table: RefCell<Option<Table>>,
    heads: PhantomData<H>,
}

/// The biases of this rank's heads.
struct Table {
    heads: Extent,
    distances: Distances,
    values: Arc<Buffer>,
}

impl<H> Alibi<H> {
    /// Returns the biases of `heads`, which are cached until heads or distances change.
    fn values(&self, rank: &Rank, heads: Extent, distances: Distances) -> Arc<Buffer> {
        let mut table = self.table.borrow_mut();
        let is_same = |table: &&Table| table.heads == heads && table.distances == distances;
        if let Some(table) = table.as_ref().filter(is_same) {
            return Arc::clone(&table.values);
        }
        let slopes =
            (heads.offset..heads.offset + heads.local).map(|head| slope(head, heads.global));
        let values: Vec<f32> = slopes
            .flat_map(|slope| {
                distances
                    .iter()
                    .map(move |distance| (-slope * distance.unsigned_abs() as f64) as f32)
            })
            .collect();
        let values = Arc::new(rank.allocator().copy_of(&values, Category::Activations));
        table.replace(Table { heads, distances, values: Arc::clone(&values) });
        values
    }
}

/// Returns the slope of a head, of `heads` ones.
fn slope(head: usize, heads: usize) -> f64 {
    let power = 1 << heads.ilog2();
    let exponent = if head < power {
        (head + 1) as f64 / power as f64
    } else {
        (2 * (head - power) + 1) as f64 / (2 * power) as f64
    };
    (-8.0 * exponent).exp2()
}

impl<H: Whole> Build for Alibi<H>
where
    H::Home: OnEveryRank<H>,
{
    fn build(_: &mut Builder<'_>) -> Self {
        Alibi { table: RefCell::default(), heads: PhantomData }
    }
}

/// Heads of queries that are the heads `H`, whole or split.
#[diagnostic::on_unimplemented(
    message = "the queries have heads `{Self}`, but the bias is `Alibi<{H}>`",
    label = "mismatched heads of a bias (the fourth element)"
)]
pub trait HeadsOf<H> {
    #[doc(hidden)]
    const SEAL: Seal;
}

impl<H> HeadsOf<H> for H {
    const SEAL: Seal = Seal::new();
}

impl<H: Whole, A: Axis> HeadsOf<H> for Split<H, A> {
    const SEAL: Seal = Seal::new();
}

impl<H: Whole, B, S, Heads: Dim + HeadsOf<H>, D, C, T, K, E>
    AttentionExtra<(B, S, Heads, D), (C, T, K, E)> for Alibi<H>
where
    T: SameSequence<S, Alibi<H>>,
{
    type First = BiasOfScores;
    type Last = BiasOfScores;
    const SEAL: Seal = Seal::new();

    #[track_caller]
    fn add_to_extras<'a>(&'a self, extras: &mut Extras<'a>) {
        let distances = extras.distances(usize::MAX);
        let values = self.values(extras.rank, extras.queries[2], distances);
        extras.bias = Some(ScoreBias::Constant(values, distances));
    }
}

debug_layers! {
    Alibi<H>: ;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The slopes of `build_alibi_tensor` of BLOOM in transformers.
    #[test]
    fn slopes_are_those_of_bloom() {
        let slopes = |heads| (0..heads).map(|head| slope(head, heads)).collect::<Vec<_>>();
        assert_eq!(slopes(4), [0.25, 0.0625, 0.015625, 0.00390625]);
        assert_eq!(slopes(6), [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]);
        assert_eq!(slopes(1), [0.00390625]);
    }
}
