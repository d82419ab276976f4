//! The terms of a weighted sum, and their factors.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::Location;
use std::rc::Rc;

use crate::autograd::{Unary, Value};
use crate::context::Rank;
use crate::fsdp::Unit;
use crate::layout::{AxisSet, Dims};
use meshwright_comm::Site;
use meshwright_mesh::__internal::shape_name;

use super::super::losses::compared_sum;
use super::super::metric::read_number;
use super::super::{Accumulating, Gradients, Loss, Losses};

/// Least common factor of gradients.
const LEAST_FACTOR: f32 = 1e-20;

/// Least common factor of gradients, as a part of the largest factor of a term.
const LEAST_RATIO: f32 = 1e-6;

/// The terms of a weighted sum, at least one.
pub(super) struct Terms(Vec<Term>);

/// A loss with its weight.
struct Term {
    /// One element: the sum over the elements of this rank.
    sum: Value,
    /// The axes over which sum and count are still to be summed.
    axes: AxisSet,
    /// Number of elements on this rank.
    count: u64,
    /// Number of elements of the step on all ranks, if it is known already.
    total: Option<f64>,
    weight: f32,
    /// Hash of the shape, the total and the line at which the weight was given, which are the same on all ranks.
    identity: u64,
}

impl Terms {
    /// Creates one term. If its elements are counted already, `total` is their number on all ranks.
    #[track_caller]
    pub(super) fn of_loss<S: Dims>(loss: Loss<S>, weight: f32, total: Option<f64>) -> Terms {
        assert!(weight.is_finite(), "the weight of a loss is a finite number, not {weight}");
        let (sum, count) = loss.into_sum_and_count();
        let line = Location::caller();
        let mut hasher = DefaultHasher::new();
        (shape_name(S::DIMS), total.map(f64::to_bits), line.file(), line.line()).hash(&mut hasher);
        let identity = hasher.finish();
        Terms(vec![Term { sum, axes: S::VARIES, count, total, weight, identity }])
    }

    /// Adds the terms of another sum.
    #[track_caller]
    pub(super) fn append(&mut self, other: Terms) {
        self.rank().check_same(other.rank());
        self.0.extend(other.0);
    }

    fn rank(&self) -> &Rank {
        self.0[0].sum.rank()
    }

    /// Begins the backward of the terms, and returns their losses, to be added to the gradients.
    ///
    /// The factor of the first term is left to the gradients as a whole. So the gradient of its sum is 1, as that of a
    /// single loss, and the gradients of a loss in bf16 are not rounded by a factor that all of them have. A factor
    /// that is far below the others is not: they would overflow.
    #[track_caller]
    pub(super) fn begin_backward(
        self,
        units: Option<&[Rc<Unit>]>,
    ) -> (Gradients<Accumulating>, Losses) {
        let factors = self.rounded_factors();
        let factor = common_factor(&factors);
        let line = Location::caller();
        let losses = self.losses(&factors, factor, line);
        let mut gradients = Gradients::begin_backward(&losses, units, line);
        gradients.totals.begin_weighted();
        gradients.set_factor(factor);
        (gradients, losses)
    }

    /// Returns the factor that is left to the gradients as a whole, of terms whose elements are counted already.
    #[track_caller]
    pub(super) fn common_factor(&self) -> f32 {
        common_factor(&self.rounded_factors())
    }

    /// Computes the sums, which are recorded now, and not only when they are differentiated.
    #[track_caller]
    pub(super) fn compute_sums(&self) {
        for term in &self.0 {
            term.sum.recorded_node();
        }
    }

    /// Returns the losses of a later micro-batch, whose gradients are added to some that have the factor `factor`, and
    /// which is differentiated at `line`.
    #[track_caller]
    pub(super) fn into_losses(self, factor: f32, line: &'static Location<'static>) -> Losses {
        self.losses(&self.rounded_factors(), factor, line)
    }

    /// Returns the losses whose sum is the weighted sum, divided by `factor`, and which are differentiated at `line`.
    #[track_caller]
    fn losses(&self, factors: &[f32], factor: f32, line: &'static Location<'static>) -> Losses {
        let mut losses: Option<Losses> = None;
        for (term, own) in self.0.iter().zip(factors) {
            let own = own / factor;
            let scaled = term.sum.to_pointwise().unary(Unary::Scale(own));
            let sum = Value::deferred(term.sum.rank(), Vec::new(), scaled);
            let compared = compared_sum(&sum, term.axes, line);
            let compared = compared.with_weight(term.weight, term.identity, line);
            let loss = Losses::of_weighted_sum(&sum, own, compared);
            losses = Some(match losses {
                Some(losses) => losses.merge_losses(loss),
                None => loss,
            });
        }
        losses.expect("a weighted sum has a term")
    }

    /// Returns the value of the weighted sum.
    #[track_caller]
    pub(super) fn reduce(&self) -> f64 {
        let factors = self.factors();
        let sums = self.all_reduce(|term| read_number(&term.sum.compute().data));
        factors.iter().zip(sums).map(|(factor, sum)| factor * sum).sum()
    }

    #[track_caller]
    fn rounded_factors(&self) -> Vec<f32> {
        self.factors().into_iter().map(|factor| factor as f32).collect()
    }

    /// Returns the factor of the sum of each term: its weight, divided by the number of its elements on all ranks.
    #[track_caller]
    fn factors(&self) -> Vec<f64> {
        let announced: Option<Vec<f64>> = self.0.iter().map(|term| term.total).collect();
        let totals = announced.unwrap_or_else(|| self.all_reduce(|term| term.count as f64));
        self.0.iter().zip(totals).map(|(term, total)| term.factor(total)).collect()
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

/// Returns the factor of the first term that is not far below the others.
fn common_factor(factors: &[f32]) -> f32 {
    let sizes = || factors.iter().map(|factor| factor.abs());
    let least = sizes().fold(LEAST_FACTOR, |least, size| least.max(LEAST_RATIO * size));
    sizes().find(|size| *size >= least).unwrap_or(1.0)
}

impl Term {
    fn factor(&self, total: f64) -> f64 {
        if total > 0.0 { f64::from(self.weight) / total } else { 0.0 }
    }
}
