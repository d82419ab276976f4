//! The check of a function's first calls: it treats all elements along a distributed dim alike.
//!
//! A rank computes its part of such a dim as one rank computes all of it. So a call with half of the elements writes that half
//! of the output and of the gradients that have the dim, and those that sum over it are the sums of both calls. A function that
//! reads along the dim, or counts its elements on this rank, does otherwise, on any mesh.

use crate::autograd::Arity;
use crate::backend::{DType, View};
use crate::context::Rank;
use crate::layout::{DimInfo, Dims};

use super::definition::Function;
use super::output::FunctionOutput;
use super::probe::{Probe, ProbeBlock, ProbePart, ProbeResults};
use super::recorded::FunctionOperation;
use super::shapes::{PerOperand, Shapes};

impl<F: Function<I, P>, I: Shapes, P: Shapes> FunctionOperation<F, I, P> {
    /// Checks forward with halves of the elements along each distributed dim of these inputs and parameters, and of the
    /// output. Backward is checked too if `requires_grad` selects inputs. Returns a description of the first mistake.
    ///
    /// # Panics
    /// If the outputs of forward are not halves of the output, or do not add up to it.
    pub(super) fn check_halves(
        &self,
        rank: &Rank,
        inputs: &PerOperand<I, View<'_>>,
        params: &PerOperand<P, View<'_>>,
        requires_grad: Option<PerOperand<I, bool>>,
    ) -> Option<String> {
        let dims = <F::Output as FunctionOutput>::Shape::DIMS;
        let call = Probe::<I, P> {
            inputs: I::Count::from_fn(|i| {
                ProbeBlock::read(rank, I::DIMS[i], &self.inputs.as_ref()[i], inputs.as_ref()[i])
            }),
            params: P::Count::from_fn(|i| {
                ProbeBlock::read(rank, P::DIMS[i], &self.params.as_ref()[i], params.as_ref()[i])
            }),
            output: self.output.clone(),
        };
        let mut mistake = None;
        for dim in distributed_dims([I::DIMS, P::DIMS].concat().into_iter().chain([dims])) {
            let extent =
                call.extent_along(dims, dim).expect("an operand or the output has the dim");
            let found = match (extent.local, extent.with_neighbor()) {
                (0, _) | (1, None) => None,
                (1, Some(both)) => self.check_dim(
                    rank,
                    &call.with_neighbor(dims, dim, both),
                    dim,
                    2,
                    &requires_grad,
                ),
                (len, _) => self.check_dim(rank, &call, dim, len, &requires_grad),
            };
            mistake = mistake.or(found);
        }
        mistake
    }

    /// Compares `whole`, a call with `len` elements along `dim`, with calls with half of them.
    fn check_dim(
        &self,
        rank: &Rank,
        whole: &Probe<I, P>,
        dim: &DimInfo,
        len: usize,
        requires_grad: &Option<PerOperand<I, bool>>,
    ) -> Option<String> {
        let dims = <F::Output as FunctionOutput>::Shape::DIMS;
        let all = I::Count::from_fn(|_| true);
        let (targets, has_backward) =
            (requires_grad.as_ref().unwrap_or(&all), requires_grad.is_some());
        let first = ProbePart { dim, first: 0, len: len / 2 };
        let parts = [ProbePart { first: first.len, len: len - first.len, ..first }, first];
        let gradient = has_backward
            .then(|| ProbeBlock::from_fn(rank, dims, &whole.output, number_of_gradient));
        // The calls with halves lie between the forward and the backward of the whole, as those of other micro-batches may:
        // so a function that keeps numbers of its last forward, and not in `Saved`, has other gradients.
        let forward = self.run_forward_probe(rank, whole);
        let halves = parts.each_ref().map(|part| {
            let gradient = gradient.as_ref().map(|gradient| gradient.part_along(part));
            let half = whole.part_along(dims, part);
            let forward = self.run_forward_probe(rank, &half);
            self.finish_probe(rank, &half, forward, targets, gradient.as_ref())
        });
        let results = self.finish_probe(rank, whole, forward, targets, gradient.as_ref());
        let path = self.function.path();
        let outputs = halves.each_ref().map(|half| &half.output);
        let along = "it reads along the dim, or counts its local elements, whose number depends on the mesh; a dim \
                     that a function reads along is `Local` in its impl, and positions are those of the global tensor, \
                     `x.extents()[dim].index(i)`";
        match compare_halves(&results.output, outputs, &parts) {
            Ok(()) => {}
            Err(Difference::Elements) => panic!(
                "`{path}` writes other results along `{dim}` if it is given half of these elements alone: {along}"
            ),
            Err(Difference::Sums) => panic!(
                "`{path}` sums over `{dim}`, but its sums over two halves of these elements do not add up to its sum \
                 over all of them, which ranks with parts of the dim rely on: {along}; add or divide once after the \
                 reduction of the partial sum"
            ),
        }
        gradients_differ(&results, &halves, &parts).map(|(operand, difference)| {
            let what = match difference {
                Difference::Elements => "writes another gradient",
                Difference::Sums => "sums to another gradient",
            };
            format!(
                "backward of `{path}` {what} of {operand} if it is given half of the elements along `{dim}` alone: \
                 {along}; or it reads numbers that the last forward has kept elsewhere than in `Saved`"
            )
        })
    }
}

/// Returns the distributed dims of these shapes, each once: without those that another operand has split otherwise, or whole.
fn distributed_dims(
    shapes: impl Iterator<Item = &'static [DimInfo]>,
) -> impl Iterator<Item = &'static DimInfo> {
    let mut all: Vec<&DimInfo> = Vec::new();
    for dim in shapes.flatten() {
        if !all.iter().any(|known| known.is_same_dim(dim)) {
            all.push(dim);
        }
    }
    let is_one =
        |dim: &&DimInfo| all.iter().filter(|other| (other.key)() == (dim.key)()).count() == 1;
    let found: Vec<_> =
        all.iter().copied().filter(|dim| !dim.axes().is_empty() && is_one(dim)).collect();
    found.into_iter()
}

/// Returns element `i` of the gradient of the output in calls that are compared: numbers between -1 and 1 without a pattern.
fn number_of_gradient(i: usize) -> f32 {
    let hash = (i as u32).wrapping_mul(2_654_435_761) >> 8;
    hash as f32 / (1 << 23) as f32 - 1.0
}

/// Difference between the results of halves and the results of all elements.
enum Difference {
    /// A half of the result has other elements.
    Elements,
    /// The results of both halves do not add up.
    Sums,
}

/// Compares the results of `parts` with that of all elements.
fn compare_halves(
    whole: &ProbeBlock,
    halves: [&ProbeBlock; 2],
    parts: &[ProbePart<'_>; 2],
) -> Result<(), Difference> {
    let tolerance = if whole.dtype() == DType::F32 { 1e-4 } else { 2e-2 };
    if whole.position(parts[0].dim).is_some() {
        let is_half = |(half, part): (&ProbeBlock, &ProbePart<'_>)| {
            let expected = whole.part_along(part).elements;
            are_near(&half.elements, &expected, tolerance * largest_magnitude(&expected))
        };
        return halves
            .into_iter()
            .zip(parts)
            .all(is_half)
            .then_some(())
            .ok_or(Difference::Elements);
    }
    let [one, other] = halves.map(|half| &half.elements[..]);
    let sums: Vec<f32> = one.iter().zip(other).map(|(one, other)| one + other).collect();
    // Sums may be small because large terms cancel.
    let terms =
        [one, other, &whole.elements].map(largest_magnitude).into_iter().fold(0.0, f32::max);
    are_near(&sums, &whole.elements, tolerance * terms).then_some(()).ok_or(Difference::Sums)
}

/// Returns the first operand whose gradients differ.
fn gradients_differ(
    whole: &ProbeResults,
    halves: &[ProbeResults; 2],
    parts: &[ProbePart<'_>; 2],
) -> Option<(String, Difference)> {
    whole.gradients.iter().find_map(|(operand, gradient)| {
        let of_half =
            |half: &'_ ProbeResults| half.gradients.iter().position(|(other, _)| other == operand);
        let [one, other] = halves.each_ref().map(of_half);
        let blocks = [&halves[0].gradients[one?].1, &halves[1].gradients[other?].1];
        let difference = compare_halves(gradient, blocks, parts).err()?;
        Some((operand.clone(), difference))
    })
}

/// Returns the largest magnitude of finite numbers.
fn largest_magnitude(numbers: &[f32]) -> f32 {
    numbers.iter().filter(|x| x.is_finite()).fold(0.0f32, |most, x| most.max(x.abs()))
}

/// Returns true if the numbers differ by at most `tolerance`, or are NaN alike.
fn are_near(found: &[f32], expected: &[f32], tolerance: f32) -> bool {
    found.iter().zip(expected).all(|(found, expected)| {
        found == expected
            || (found.is_nan() && expected.is_nan())
            || (found - expected).abs() <= tolerance
    })
}
