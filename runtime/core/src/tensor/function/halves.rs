//! The check of a function: it treats all elements along a distributed dim alike, and its results follow from its
//! operands.
//!
//! A rank computes its part of such a dim as one rank computes all of it. So a call with half of the elements writes
//! that half of the output and of the gradients that have the dim, and those that sum over it are the sums of both
//! calls. A function that reads along the dim, or counts its elements on this rank, does otherwise, on any mesh. One
//! that keeps a counter or a memory of other calls has other results when it is called again.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::autograd::Arity;
use crate::context::Rank;
use crate::layout::{DimInfo, Dims};
use meshwright_backend::{DType, View};

use super::definition::Function;
use super::made_up::{Draw, number_of_gradient};
use super::output::FunctionOutput;
use super::probe::{Probe, ProbeBlock, ProbePart, ProbeResults};
use super::recorded::FunctionOperation;
use super::shapes::{PerOperand, Shapes};
use crate::promise::CallCheck;

/// Result of a check of calls: the first mistake of forward, or else of backward.
type Checked = Result<Option<String>, String>;

impl<F: Function<I, P>, I: Shapes, P: Shapes> FunctionOperation<F, I, P> {
    /// Checks forward with these inputs and parameters, and with made-up ones. Backward is checked too if
    /// `requires_grad` selects inputs: of made-up operands with the gradients of all of them. Returns a description of
    /// its first mistake.
    ///
    /// # Panics
    /// If forward has a mistake.
    pub(super) fn check_call(
        &self,
        rank: &Rank,
        check: CallCheck,
        inputs: &PerOperand<I, View<'_>>,
        params: &PerOperand<P, View<'_>>,
        requires_grad: Option<PerOperand<I, bool>>,
    ) -> Option<String> {
        let real = Probe::<I, P> {
            inputs: I::Count::from_fn(|i| {
                ProbeBlock::read(rank, I::DIMS[i], &self.inputs.as_ref()[i], inputs.as_ref()[i])
            }),
            params: P::Count::from_fn(|i| {
                ProbeBlock::read(rank, P::DIMS[i], &self.params.as_ref()[i], params.as_ref()[i])
            }),
            output: self.output.clone(),
        };
        let mut of_backward = None;
        for draw in Draw::of_check(check, rank.allocator().device().is_some()) {
            let checked = self.check_calls(rank, &real, draw, requires_grad.as_ref());
            let mistake = checked.unwrap_or_else(|mistake| self.refuse(&mistake));
            of_backward = of_backward.or(mistake);
        }
        of_backward
    }

    /// Refuses the function because of a mistake.
    pub(super) fn refuse(&self, mistake: &str) -> ! {
        panic!("{mistake}; it is called at {}", self.called_at)
    }

    /// Checks calls with operands of `draw`. A function that refuses made-up operands, half of the elements, or the
    /// gradient of an operand that requires none, by a panic is checked without these.
    fn check_calls(
        &self,
        rank: &Rank,
        real: &Probe<I, P>,
        draw: Draw,
        requires_grad: Option<&PerOperand<I, bool>>,
    ) -> Checked {
        let all = I::Count::from_fn(|_| true);
        let all = if draw == Draw::Real { requires_grad } else { requires_grad.map(|_| &all) };
        let targets = [all, requires_grad, None];
        let check = |targets| {
            let check = || self.check_draw(rank, real, draw, targets);
            catch_unwind(AssertUnwindSafe(check)).ok()
        };
        targets.into_iter().find_map(check).unwrap_or(Ok(None))
    }

    /// Checks calls with operands of `draw`.
    fn check_draw(
        &self,
        rank: &Rank,
        real: &Probe<I, P>,
        draw: Draw,
        targets: Option<&PerOperand<I, bool>>,
    ) -> Checked {
        let dims = <F::Output as FunctionOutput>::Shape::DIMS;
        let all_dims = [I::DIMS, P::DIMS].concat().into_iter().chain([dims]);
        let (mut of_backward, mut is_along) = (None, false);
        for dim in distributed_dims(all_dims) {
            let extent =
                real.extent_along(dims, dim).expect("an operand or the output has the dim");
            let (whole, len) = match (extent.local, extent.with_neighbor()) {
                (0, _) | (1, None) => continue,
                (1, Some(both)) => {
                    (real.with_neighbor(dims, dim, both).with_draw(draw, Some(dim)), 2)
                }
                (len, _) => (real.with_draw(draw, Some(dim)), len),
            };
            is_along = true;
            let first = ProbePart { dim, first: 0, len: len / 2 };
            let parts = [ProbePart { first: first.len, len: len - first.len, ..first }, first];
            let found = self.check_whole(rank, &whole, Some(&parts), draw, targets)?;
            of_backward = of_backward.or(found);
        }
        if is_along {
            return Ok(of_backward);
        }
        self.check_whole(rank, &real.with_draw(draw, None), None, draw, targets)
    }

    /// Compares `whole` with a second call with the same operands, and with calls with `halves` of its elements along a
    /// dim.
    fn check_whole(
        &self,
        rank: &Rank,
        whole: &Probe<I, P>,
        halves: Option<&[ProbePart<'_>; 2]>,
        draw: Draw,
        targets: Option<&PerOperand<I, bool>>,
    ) -> Checked {
        let dims = <F::Output as FunctionOutput>::Shape::DIMS;
        let (path, of_draw) = (self.function.path(), draw.describe());
        let gradient =
            targets.map(|_| ProbeBlock::from_fn(rank, dims, &whole.output, number_of_gradient));
        // The other calls lie between the forward and the backward of the whole, as calls of other micro-batches may:
        // so a function that keeps numbers of its last forward, and not in `Saved`, has other gradients.
        let [forward, again] = [(); 2].map(|()| self.run_forward_probe(rank, whole));
        let again_is = "if it is called again with the same operands";
        let by_calls = "a function has no counter, and no memory of other calls, since it runs again in recomputed \
                        segments and for each micro-batch; the index of a layer is a setting of it, and random numbers \
                        are drawn from `random_key` by the index in the global tensor";
        if !forward.has_output_of(rank, &again) {
            return Err(format!("`{path}` writes other results {again_is}{of_draw}: {by_calls}"));
        }
        let of_halves = halves.map(|parts| {
            let results = parts.each_ref().map(|part| {
                let gradient = gradient.as_ref().map(|gradient| gradient.part_along(part));
                let half = whole.part_along(dims, part);
                let forward = self.run_forward_probe(rank, &half);
                self.finish_probe(rank, &half, forward, targets.zip(gradient.as_ref()))
            });
            (parts, results)
        });
        let [results, again] = [forward, again]
            .map(|forward| self.finish_probe(rank, whole, forward, targets.zip(gradient.as_ref())));
        if let Some((parts, halves)) = &of_halves {
            let of_backward = describe_halves(path, parts, &results, halves, of_draw)?;
            if of_backward.is_some() {
                return Ok(of_backward);
            }
        }
        Ok(results.differing_gradient(&again).map(|operand| {
            format!("backward of `{path}` writes another gradient of {operand} {again_is}{of_draw}: {by_calls}")
        }))
    }
}

/// Compares the results of `halves` with the results of all elements.
fn describe_halves(
    path: &str,
    parts: &[ProbePart<'_>; 2],
    results: &ProbeResults,
    halves: &[ProbeResults; 2],
    of_draw: &str,
) -> Checked {
    let dim = parts[0].dim;
    let outputs = halves.each_ref().map(|half| &half.output);
    let along = "it reads along the dim, or counts its local elements, whose number depends on the mesh; a dim that a \
                 function reads along is `Local` in its impl, and its positions in the global tensor are \
                 `x.local_extents()[dim].index(i)`";
    match compare_halves(&results.output, outputs, parts) {
        Ok(()) => {}
        Err(Difference::Elements) => {
            return Err(format!(
                "`{path}` writes other results along `{dim}` if it is given half of these elements alone{of_draw}: \
                 {along}"
            ));
        }
        Err(Difference::Sums) => {
            return Err(format!(
                "`{path}` sums over `{dim}`, but its sums over two halves of these elements do not add up to its sum \
                 over all of them{of_draw}, which ranks with parts of the dim rely on: {along}; add or divide once \
                 after the reduction of the partial sum"
            ));
        }
    }
    Ok(gradients_differ(results, halves, parts).map(|(operand, difference)| {
        let what = match difference {
            Difference::Elements => "writes another gradient",
            Difference::Sums => "sums to another gradient",
        };
        format!(
            "backward of `{path}` {what} of {operand} if it is given half of the elements along `{dim}` \
             alone{of_draw}: {along}; or it reads numbers that the last forward has kept elsewhere than in `Saved`"
        )
    }))
}

/// Returns the distributed dims of these shapes, each once: without those that another operand has split otherwise. An
/// operand that has such a dim whole is whole for each half.
fn distributed_dims(
    shapes: impl Iterator<Item = &'static [DimInfo]>,
) -> impl Iterator<Item = &'static DimInfo> {
    let mut all: Vec<&DimInfo> = Vec::new();
    for dim in shapes.flatten() {
        if !all.iter().any(|known| known.is_same_dim(dim)) {
            all.push(dim);
        }
    }
    all.retain(|dim| !dim.axes().is_empty());
    let is_one =
        |dim: &&DimInfo| all.iter().filter(|other| (other.key)() == (dim.key)()).count() == 1;
    let found: Vec<_> = all.iter().copied().filter(is_one).collect();
    found.into_iter()
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
