//! Losses, which have to be the same on ranks that compute the same part of a batch.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::Location;

use crate::layout::{AxisId, AxisSet};
use meshwright_mesh::MeshShape;

use super::declared_values::describe_agreement;

/// The sum of the losses of gradients.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct LossSum {
    /// Sum of their sums on this rank.
    sum: f64,
    /// The axes over which any of them varies.
    varies: AxisSet,
    /// Hash of their weights, and of auxiliary losses; 0 for losses without.
    weights: u64,
    /// Line of the last one.
    line: Option<&'static Location<'static>>,
}

impl LossSum {
    /// Creates the sum of one loss that is differentiated at `line`, whose `sum` is the same on ranks with equal
    /// positions along `varies`.
    pub fn of_one_loss(sum: f64, varies: AxisSet, line: &'static Location<'static>) -> LossSum {
        LossSum { sum, varies, weights: 0, line: Some(line) }
    }

    /// Returns the sum as that of one loss with a weight, differentiated at `line`. The weights of a step are compared
    /// in their order, with the hash `term` of everything else that has to be the same on all ranks.
    pub fn with_weight(self, weight: f32, term: u64, line: &'static Location<'static>) -> LossSum {
        LossSum { weights: hash_of([term, u64::from(weight.to_bits())]), line: Some(line), ..self }
    }

    /// Returns the sum as that of an auxiliary loss, attached at `line`. The lines of a step are compared in order.
    pub fn of_auxiliary_loss(self, line: &'static Location<'static>) -> LossSum {
        LossSum { weights: hash_of((line.file(), line.line())), line: Some(line), ..self }
    }

    /// Returns the sum of both.
    pub fn with(self, later: LossSum) -> LossSum {
        LossSum {
            sum: self.sum + later.sum,
            varies: self.varies.union(later.varies),
            weights: match (self.weights, later.weights) {
                (weights, 0) | (0, weights) => weights,
                both => hash_of([both.0, both.1]),
            },
            line: later.line.or(self.line),
        }
    }

    /// Returns the sum with that of auxiliary losses, whose order is compared, and also their values if the losses vary
    /// over the same axes.
    pub fn with_auxiliary(self, auxiliary: LossSum) -> LossSum {
        let has_axes_of_losses = self.varies.union(auxiliary.varies) == self.varies;
        let (sum, varies) = if has_axes_of_losses {
            (auxiliary.sum, auxiliary.varies)
        } else {
            (0.0, AxisSet::NONE)
        };
        let own_line = self.line;
        let both = self.with(LossSum { sum, varies, ..auxiliary });
        LossSum { line: own_line.or(both.line), ..both }
    }

    /// Returns the sum as one of losses of the last pipeline stage, on a mesh of several stages.
    pub(super) fn of_last_stage(self, shape: &MeshShape) -> LossSum {
        match shape.degree(AxisId::Pp) {
            1 => self,
            _ => LossSum { varies: self.varies.union(AxisSet::of(AxisId::Pp)), ..self },
        }
    }

    /// Number of words that [`words`](Self::words) returns.
    pub(super) const WORDS: usize = 5;

    /// Returns the words that other ranks compare with their own.
    pub(super) fn words(&self) -> [u32; Self::WORDS] {
        let halves = |word: u64| [(word >> 32) as u32, word as u32];
        let ([a, b], [c, d]) = (halves(self.sum.to_bits()), halves(self.weights));
        [a, b, c, d, self.varies.number() as u32]
    }

    /// Compares the losses of this rank with the words of another one.
    ///
    /// # Panics
    /// If they differ, although the ranks have the same positions along the axes over which the losses vary, or have
    /// other weights.
    #[track_caller]
    pub(super) fn compare_with(&self, words: &[u32], other: usize, rank: usize, shape: &MeshShape) {
        let Some(line) = self.line else { return };
        let [sum, weights] =
            [0, 2].map(|first| u64::from(words[first]) << 32 | u64::from(words[first + 1]));
        // Only ranks of the last pipeline stage have losses.
        assert!(
            weights == self.weights || shape.degree(AxisId::Pp) > 1,
            "the weighted or auxiliary losses of a step (the last is differentiated at {line}) differ between rank \
             {rank} and rank {other} in number, order, shapes or weights: all ranks add the same losses in the same \
             order, which a `HashMap` does not have, with weights that follow from numbers of all ranks, as \
             `Loss::reduce` and `Gradients::norm` return"
        );
        let position = |rank| shape.index_in_group(rank, self.varies);
        if position(other) != position(rank) || words[4] != self.varies.number() as u32 {
            return;
        }
        let sum = f64::from_bits(sum);
        assert!(
            is_same_sum(self.sum, sum),
            "the losses of a step (the last is differentiated at {line}) are declared {}, but they sum to {} on rank \
             {rank} and to {sum} on rank {other}: these ranks compute the same part of the batch, so a loss may depend \
             neither on the index of a rank nor on control flow or random numbers that differ between them, such as \
             `if rank.index() == 0` or a counter that the threads share",
            describe_agreement(self.varies),
            self.sum,
        );
    }
}

fn hash_of(words: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    words.hash(&mut hasher);
    hasher.finish()
}

/// Returns true if two ranks have the same loss. Sums may differ by rounding: a rank may have read a number from a
/// tensor.
fn is_same_sum(one: f64, other: f64) -> bool {
    let difference = (one - other).abs();
    one == other
        || (one.is_nan() && other.is_nan())
        || (difference.is_finite() && difference <= 1e-3 * one.abs().max(other.abs()))
}

#[cfg(test)]
mod tests {
    use super::is_same_sum;

    #[test]
    fn sums_differ_by_rounding_only() {
        let [inf, nan] = [f64::INFINITY, f64::NAN];
        for (one, other, expected) in [
            (0.0, -0.0, true),
            (1000.0, 1000.5, true),
            (1000.0, 1002.0, false),
            (-1.0, 1.0, false),
            (inf, inf, true),
            (inf, -inf, false),
            (inf, 1.0, false),
            (nan, nan, true),
            (nan, 1.0, false),
            (nan, inf, false),
        ] {
            assert_eq!(is_same_sum(one, other), expected, "{one} and {other}");
            assert_eq!(is_same_sum(other, one), expected, "{other} and {one}");
        }
    }
}
