//! The check of a function's first calls: it treats all elements along a distributed dim alike.
//!
//! A rank computes its part of such a dim as one rank computes all of it, so a call with half of the elements writes that half
//! of the output. A function that reads along the dim, or counts its elements on this rank, does not, on any mesh.

use crate::autograd::Arity;
use crate::backend::{BlockCopy, Buffer, DType, View};
use crate::context::Rank;
use crate::layout::{DimInfo, Dims};
use crate::mesh::{Extent, local_len};

use super::calls::{Forward, FunctionContext};
use super::definition::Function;
use super::operands::{OperandName, OperandView, ResultView};
use super::output::FunctionOutput;
use super::recorded::FunctionOperation;
use super::shapes::{PerOperand, Shapes};

/// A block of this rank with its dims, row-major.
struct Block<'a> {
    dims: &'static [DimInfo],
    extents: Vec<Extent>,
    view: View<'a>,
}

/// Half of the elements of a rank along a dim.
struct Half<'a> {
    dim: &'a DimInfo,
    /// Index of the first element.
    first: usize,
    len: usize,
}

impl Block<'_> {
    /// Returns the extents and the elements of a half; all of a block without the dim.
    fn half(&self, rank: &Rank, half: &Half<'_>) -> (Vec<Extent>, Buffer) {
        let mut extents = self.extents.clone();
        let at = self.dims.iter().position(|dim| dim.is(half.dim));
        let copy = match at {
            Some(at) => {
                let inner = local_len(&extents[at + 1..]);
                let blocks = local_len(&extents[..at]);
                let stride = extents[at].local * inner;
                extents[at] = extents[at].range(half.first, half.len);
                let len = half.len * inner;
                BlockCopy {
                    blocks,
                    len,
                    src_start: half.first * inner,
                    src_stride: stride,
                    dst_start: 0,
                    dst_stride: len,
                }
            }
            None => {
                let len = self.view.len();
                BlockCopy {
                    blocks: 1,
                    len,
                    src_start: 0,
                    src_stride: len,
                    dst_start: 0,
                    dst_stride: len,
                }
            }
        };
        let mut data = rank.scratch(self.view.dtype(), local_len(&extents));
        rank.backend().copy_blocks(&copy, self.view, data.view_mut());
        (extents, data)
    }
}

impl<F: Function<I, P>, I: Shapes, P: Shapes> FunctionOperation<F, I, P> {
    /// Checks the halves of `result`, the output for these inputs and parameters, along each of its distributed dims.
    ///
    /// # Panics
    /// If the output for half of the elements is not that half of the output.
    pub(super) fn check_halves(
        &self,
        rank: &Rank,
        inputs: &PerOperand<I, View<'_>>,
        params: &PerOperand<P, View<'_>>,
        result: &Buffer,
    ) {
        let dims = <F::Output as FunctionOutput>::Shape::DIMS;
        let all = || I::DIMS.iter().chain(P::DIMS).copied().flatten();
        for (dim, extent) in dims.iter().zip(&self.output) {
            let is_split_otherwise =
                |other: &DimInfo| (other.key)() == (dim.key)() && !other.is(dim);
            if dim.axes().is_empty() || extent.local < 2 || all().any(is_split_otherwise) {
                continue;
            }
            let middle = extent.local / 2;
            for (first, len) in [(0, middle), (middle, extent.local - middle)] {
                self.check_half(rank, inputs, params, result, &Half { dim, first, len });
            }
        }
    }

    fn check_half(
        &self,
        rank: &Rank,
        inputs: &PerOperand<I, View<'_>>,
        params: &PerOperand<P, View<'_>>,
        result: &Buffer,
        half: &Half<'_>,
    ) {
        let path = self.function.path();
        let inputs = I::Count::from_fn(|i| {
            let (dims, extents) = (I::DIMS[i], self.inputs.as_ref()[i].clone());
            Block { dims, extents, view: inputs.as_ref()[i] }.half(rank, half)
        });
        let params = P::Count::from_fn(|i| {
            let (dims, extents) = (P::DIMS[i], self.params.as_ref()[i].clone());
            Block { dims, extents, view: params.as_ref()[i] }.half(rank, half)
        });
        let dims = <F::Output as FunctionOutput>::Shape::DIMS;
        let output = Block { dims, extents: self.output.clone(), view: result.view() };
        let (extents, expected) = output.half(rank, half);
        let mut found = rank.alloc(local_len(&extents));
        let context = FunctionContext { rank, path };
        drop(self.function.forward_pass(Forward {
            inputs: I::Count::map_ref(&inputs, |(extents, data)| {
                let name = OperandName::new(rank, path, "input");
                OperandView { view: Some(data.view()), extents, name }
            }),
            params: P::Count::map_ref(&params, |(extents, data)| {
                let name = OperandName::new(rank, path, "parameter");
                OperandView { view: Some(data.view()), extents, name }
            }),
            output: ResultView { view: found.view_mut(), extents: &extents, rank },
            context,
        }));
        let tolerance = if found.dtype() == DType::F32 { 1e-4 } else { 2e-2 };
        let (found, expected) = (rank.read(found.view()), rank.read(expected.view()));
        assert!(
            are_near(&found, &expected, tolerance),
            "`{path}` writes other results along `{}` if it is given half of these elements alone: it reads along the dim, or \
             counts its elements on this rank, of which another mesh has others; a dim that a function reads along is `Local` in \
             its impl, and positions are those of the global tensor, `x.extents()[dim].index(i)`",
            half.dim
        );
    }
}

/// Returns true if the numbers differ by at most `tolerance` of the largest, or are NaN alike.
fn are_near(found: &[f32], expected: &[f32], tolerance: f32) -> bool {
    let largest =
        expected.iter().filter(|x| x.is_finite()).fold(0.0f32, |most, x| most.max(x.abs()));
    found.iter().zip(expected).all(|(found, expected)| {
        found == expected
            || (found.is_nan() && expected.is_nan())
            || (found - expected).abs() <= tolerance * largest
    })
}
