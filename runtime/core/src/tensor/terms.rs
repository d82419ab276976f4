//! Terms of what is differentiated: sums with their counts, and the factors by which these are multiplied.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::Location;

use crate::autograd::{LossFactor, NodeId, Unary, Value};
use crate::context::Rank;
use crate::layout::{AxisSet, DimInfo, Dims};
use crate::promise::LossSum;
use meshwright_comm::Site;
use meshwright_mesh::__internal::shape_name;

use super::counting::Counting;
use super::metric::read_number;

/// Least common factor of gradients.
const LEAST_FACTOR: f32 = 1e-20;

/// Least common factor of gradients, as a part of the largest factor of a term.
const LEAST_RATIO: f32 = 1e-6;

/// Losses that are differentiated together, at least one.
pub struct Terms(Vec<Term>);

/// A sum with its count.
pub(super) struct Term {
    /// One element: the sum over the elements of this rank.
    sum: Value,
    /// Dims of the elements.
    dims: &'static [DimInfo],
    /// The axes over which sum and count are still to be summed.
    pub(super) axes: AxisSet,
    /// Number of elements on this rank, or the sum of their weights.
    pub(super) elements: f64,
    weight: f32,
    pub(super) counting: Counting,
    /// Line at which the weight was given.
    line: &'static Location<'static>,
}

impl Terms {
    /// Creates one term: a sum over `elements` elements of this rank, shaped `S`.
    #[track_caller]
    pub(super) fn of_sum<S: Dims>(
        sum: Value,
        elements: f64,
        weight: f32,
        counting: Counting,
    ) -> Terms {
        assert!(weight.is_finite(), "the weight of a loss is a finite number, not {weight}");
        let (dims, axes, line) = (S::DIMS, S::VARIES, Location::caller());
        Terms(vec![Term { sum, dims, axes, elements, weight, counting, line }])
    }

    /// Adds other terms.
    #[track_caller]
    pub(super) fn append(&mut self, other: Terms) {
        self.rank().check_same(other.rank());
        self.0.extend(other.0);
    }

    pub(super) fn rank(&self) -> &Rank {
        self.0[0].sum.rank()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Term> {
        self.0.iter()
    }

    /// Records the sums now, and not only when they are differentiated.
    #[track_caller]
    pub(super) fn record_sums(&self) {
        for term in &self.0 {
            term.sum.recorded_node();
        }
    }

    /// Records the sums, multiplied by `factors`, to be differentiated at `line`. Returns the operations that have
    /// computed them, the factor that all of these have, and the sum that ranks compare.
    #[track_caller]
    pub(super) fn record(
        self,
        factors: &[f32],
        line: &'static Location<'static>,
    ) -> (Vec<NodeId>, LossFactor, LossSum) {
        let mut compared = LossSum::default();
        let mut roots = Vec::new();
        for (term, factor) in self.0.into_iter().zip(factors) {
            let sum = term.scaled_sum(*factor);
            compared = compared.with(term.compared(&sum, line));
            roots.extend(sum.recorded_node());
        }
        let factor = factors.iter().copied().map(LossFactor::Same).reduce(LossFactor::and);
        (roots, factor.unwrap_or(LossFactor::ONE), compared)
    }

    /// Returns the sum of all terms, each divided by its count on all ranks.
    #[track_caller]
    pub(super) fn reduce(&self) -> f64 {
        let factors = self.factors();
        let sums = self.all_reduce(|term| read_number(&term.sum.compute().data));
        factors.iter().zip(sums).map(|(factor, sum)| factor * sum).sum()
    }

    /// Returns the factor of each sum: its weight, divided by its count on all ranks.
    #[track_caller]
    pub(super) fn factors(&self) -> Vec<f64> {
        let known: Option<Vec<f64>> =
            self.0.iter().map(|term| term.counting.known_divisor()).collect();
        // A closure would hide the line of the program.
        let divisors = match known {
            Some(divisors) => divisors,
            None => self.all_reduce(|term| term.elements),
        };
        self.0.iter().zip(divisors).map(|(term, divisor)| term.factor(divisor)).collect()
    }

    /// Sums a number of each term over the ranks.
    #[track_caller]
    fn all_reduce(&self, number: impl Fn(&Term) -> f64) -> Vec<f64> {
        let mut by_axes: BTreeMap<AxisSet, Vec<usize>> = BTreeMap::new();
        for (index, term) in self.0.iter().enumerate() {
            by_axes.entry(term.axes).or_default().push(index);
        }
        let mut all = vec![0.0; self.0.len()];
        for (axes, indices) in by_axes {
            let mut numbers: Vec<f64> =
                indices.iter().map(|index| number(&self.0[*index])).collect();
            self.rank().all_reduce_f64(axes, &Site::here("weighted losses"), &mut numbers);
            for (index, number) in indices.into_iter().zip(numbers) {
                all[index] = number;
            }
        }
        all
    }
}

impl Term {
    fn factor(&self, divisor: f64) -> f64 {
        if divisor > 0.0 { f64::from(self.weight) / divisor } else { 0.0 }
    }

    /// Returns the sum, multiplied by `factor`.
    fn scaled_sum(&self, factor: f32) -> Value {
        if factor == 1.0 {
            return self.sum.clone();
        }
        let scaled = self.sum.to_pointwise().unary(Unary::Scale(factor));
        Value::deferred(self.sum.rank(), Vec::new(), scaled)
    }

    /// Returns what ranks compare of the term, whose `sum` is differentiated at `line`: it is the same on all ranks
    /// with equal positions along its axes, unless their control flow or a user-defined function depends on the rank.
    #[track_caller]
    fn compared(&self, sum: &Value, line: &'static Location<'static>) -> LossSum {
        let number = || read_number(&sum.compute().data);
        let compared = LossSum::of_checked_loss(sum.rank(), self.axes, line, number);
        match self.counting {
            Counting::Pooled => compared,
            _ => compared.with_weight(self.weight, self.identity(), line),
        }
    }

    /// Returns a hash of shape, count and line, which are the same on all ranks.
    fn identity(&self) -> u64 {
        let total = match &self.counting {
            Counting::OfStep(count) => Some(count.total().to_bits()),
            _ => None,
        };
        let mut hasher = DefaultHasher::new();
        (shape_name(self.dims), total, self.line.file(), self.line.line()).hash(&mut hasher);
        hasher.finish()
    }
}

/// Returns the factor that is left to the gradients as a whole: that of the first term which is not far below the
/// others. So the gradient of its sum is 1, as that of a single loss, and the gradients of a loss in bf16 are not
/// rounded by a factor that all of them have. With a factor far below the others, these would overflow.
pub(super) fn common_factor(factors: &[f32]) -> f32 {
    let sizes = || factors.iter().map(|factor| factor.abs());
    let least = sizes().fold(LEAST_FACTOR, |least, size| least.max(LEAST_RATIO * size));
    sizes().find(|size| *size >= least).unwrap_or(1.0)
}
