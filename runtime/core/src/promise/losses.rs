//! Losses, which have to be the same on ranks that compute the same part of a batch.

use std::panic::Location;

use crate::context::Rank;
use crate::layout::{AxisId, AxisSet};
use meshwright_mesh::MeshShape;

use super::digests::hash_of;
use super::recorded::describe_agreement;

/// The sum of the losses of gradients.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct LossSum {
    /// Sum of their sums on this rank.
    sum: f64,
    /// The axes over which any of them varies.
    varies: AxisSet,
    /// Number of elements that they count on this rank, or the sum of the weights of these.
    count: f64,
    /// Hash of their weights, and of auxiliary losses; 0 for losses without.
    weights: u64,
    /// Line of the last one.
    line: Option<&'static Location<'static>>,
}

impl LossSum {
    /// Creates the sum of one loss that is differentiated at `line`, whose `sum` is the same on ranks with equal
    /// positions along `varies`.
    fn of_one_loss(sum: f64, varies: AxisSet, line: &'static Location<'static>) -> LossSum {
        LossSum { sum, varies, line: Some(line), ..LossSum::default() }
    }

    /// Returns what ranks compare of one loss that is differentiated at `line`: nothing if no checks are made, or on a
    /// device. Ranks may use different kernels there, rounding may be all that is left of a sum of both signs, and it
    /// would be waited for.
    pub fn of_checked_loss(
        rank: &Rank,
        varies: AxisSet,
        line: &'static Location<'static>,
        sum: impl FnOnce() -> f64,
    ) -> LossSum {
        match rank.allocator().device() {
            None if rank.makes_checks() => LossSum::of_one_loss(sum(), varies, line),
            _ => LossSum::default(),
        }
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
            count: self.count + later.count,
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

    /// Returns the sum as one of losses that count `count` elements, which is the same on ranks with equal positions
    /// along `axes`.
    pub fn with_count(self, axes: AxisSet, count: f64) -> LossSum {
        LossSum { count: self.count + count, varies: self.varies.union(axes), ..self }
    }

    /// Returns the sum as one of losses of the last pipeline stage, on a mesh of several stages.
    pub(super) fn of_last_stage(self, shape: &MeshShape) -> LossSum {
        match shape.degree(AxisId::Pp) {
            1 => self,
            _ => self.varying_over(AxisSet::of(AxisId::Pp)),
        }
    }

    /// Returns the sum as one of losses that also vary over `axes`.
    pub(super) fn varying_over(self, axes: AxisSet) -> LossSum {
        LossSum { varies: self.varies.union(axes), ..self }
    }

    /// Number of words that [`words`](Self::words) returns.
    pub(super) const WORDS: usize = 7;

    /// Returns the words that other ranks compare with their own.
    pub(super) fn words(&self) -> [u32; Self::WORDS] {
        let halves = |word: u64| [(word >> 32) as u32, word as u32];
        let [[a, b], [c, d], [e, f]] =
            [self.sum.to_bits(), self.weights, self.count.to_bits()].map(halves);
        [a, b, c, d, e, f, self.varies.number() as u32]
    }

    /// Returns the hash of the weights.
    pub(super) fn weights(&self) -> u64 {
        self.weights
    }

    /// Returns the axes over which the losses vary.
    pub(super) fn varies(&self) -> AxisSet {
        self.varies
    }

    /// Compares the losses of this rank with the words of another one.
    ///
    /// # Panics
    /// If they differ, although the ranks have the same positions along the axes over which the losses vary, or have
    /// other weights.
    #[track_caller]
    pub(super) fn compare_with(&self, words: &[u32], other: usize, rank: usize, shape: &MeshShape) {
        let [sum, weights, count] =
            [0, 2, 4].map(|first| u64::from(words[first]) << 32 | u64::from(words[first + 1]));
        let count = f64::from_bits(count);
        let position = |rank| shape.index_in_group(rank, self.varies);
        let is_alike = position(other) == position(rank) && words[6] == self.varies.number() as u32;
        assert!(
            count == self.count || !is_alike,
            "the losses of a step{} are declared {}, but they count {} elements on rank {rank} and {count} on rank \
             {other}: these ranks compute the same part of the batch, so they ignore the same targets, and have the \
             same weights",
            self.line.map_or_else(String::new, |line| format!(
                " (the last is differentiated at {line})"
            )),
            describe_agreement(self.varies),
            self.count,
        );
        let Some(line) = self.line else { return };
        // Only ranks of the last pipeline stage have losses.
        assert!(
            weights == self.weights || shape.degree(AxisId::Pp) > 1,
            "the weighted or auxiliary losses of a step (the last is differentiated at {line}) differ between rank \
             {rank} and rank {other} in number, order, shapes or weights, or in the lines of `with_auxiliary_loss`: \
             all ranks add and attach the same losses in the same order, which neither `if rank.index() == 0` nor a \
             `HashMap` has, with weights that follow from numbers of all ranks, as `Loss::reduce` and \
             `Gradients::norm` return"
        );
        if !is_alike {
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
    use super::*;

    /// Ranks of `tp` share a part of the batch, and ranks of `dp` do not.
    #[test]
    fn counts_differ_only_between_parts_of_the_batch() {
        let shape: MeshShape = "dp=2,tp=2".parse().unwrap();
        let data = AxisSet::of(AxisId::Dp);
        let count = |count| LossSum::default().with_count(data, count);
        let compare = |other: usize, counts: [f64; 2]| {
            let [own, words] = [count(counts[0]), count(counts[1])];
            let compare = || own.compare_with(&words.words(), other, 0, &shape);
            std::panic::catch_unwind(compare).map_err(|panic| *panic.downcast::<String>().unwrap())
        };
        assert_eq!(compare(1, [3.0, 3.0]), Ok(()));
        assert_eq!(compare(2, [3.0, 4.0]), Ok(()));
        let message = compare(1, [3.0, 4.0]).unwrap_err();
        assert!(message.contains("they count 3 elements on rank 0 and 4 on rank 1"), "{message}");
    }

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
