//! Probe calls of a user-defined function, which check what it declares: with made-up operands, or with a part of the
//! elements of a rank.

use crate::autograd::Arity;
use crate::context::Rank;
use crate::layout::{DimInfo, Dims};
use meshwright_backend::{Buffer, Category, DType, View};
use meshwright_mesh::__internal::local_len;
use meshwright_mesh::Extent;

use super::calls::{Backward, Forward, FunctionContext};
use super::definition::Function;
use super::gradient_target::GradientBuffers;
use super::made_up::{Draw, Numbers};
use super::operands::{OperandName, OperandView, ResultView};
use super::output::FunctionOutput;
use super::recorded::{FunctionOperation, operand_views};
use super::saved::SavedBuffers;
use super::shapes::{PerOperand, Shapes};

/// Elements of an operand or a result on the host, with their dims, row-major.
#[derive(Clone)]
pub(super) struct ProbeBlock {
    dims: &'static [DimInfo],
    extents: Vec<Extent>,
    dtype: DType,
    pub(super) elements: Vec<f32>,
}

/// Some of the elements of a rank along a dim.
pub(super) struct ProbePart<'a> {
    pub(super) dim: &'a DimInfo,
    /// Index of the first element.
    pub(super) first: usize,
    pub(super) len: usize,
}

impl ProbeBlock {
    /// Reads a block of this rank.
    pub(super) fn read(
        rank: &Rank,
        dims: &'static [DimInfo],
        extents: &[Extent],
        view: View<'_>,
    ) -> ProbeBlock {
        ProbeBlock {
            dims,
            extents: extents.to_vec(),
            dtype: view.dtype(),
            elements: rank.read(view),
        }
    }

    /// Creates a block in the compute dtype whose element `i` is `number(i)`.
    pub(super) fn from_fn(
        rank: &Rank,
        dims: &'static [DimInfo],
        extents: &[Extent],
        number: impl Fn(usize) -> f32,
    ) -> ProbeBlock {
        let elements = (0..local_len(extents)).map(number).collect();
        ProbeBlock { dims, extents: extents.to_vec(), dtype: rank.compute_dtype(), elements }
    }

    /// Returns the block with the numbers of `draw` for operand number `operand`, whose second half is that along
    /// `dim`.
    fn with_made_up(&self, draw: Draw, operand: usize, dim: Option<&DimInfo>) -> ProbeBlock {
        let numbers = Numbers::of_operand(draw, &self.elements);
        let at = dim.and_then(|dim| self.position(dim));
        let in_second_half = |i: usize| {
            at.is_some_and(|at| {
                let (inner, len) = (local_len(&self.extents[at + 1..]), self.extents[at].local);
                i / inner % len >= len / 2
            })
        };
        let element = |i| numbers.number(operand, i, in_second_half(i));
        ProbeBlock { elements: (0..self.elements.len()).map(element).collect(), ..self.clone() }
    }

    /// Returns the position of `dim` among the dims.
    pub(super) fn position(&self, dim: &DimInfo) -> Option<usize> {
        self.dims.iter().position(|other| other.is_same_dim(dim))
    }

    /// Returns the element type.
    pub(super) fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns part of the elements, or all elements if the block does not have the dim.
    pub(super) fn part_along(&self, part: &ProbePart<'_>) -> ProbeBlock {
        let Some(at) = self.position(part.dim) else { return self.clone() };
        let inner = local_len(&self.extents[at + 1..]);
        let row = self.extents[at].local * inner;
        let (start, end) = (part.first * inner, (part.first + part.len) * inner);
        let rows = self.elements.chunks(row.max(1));
        let elements = rows.flat_map(|row| &row[start..end]).copied().collect();
        let mut extents = self.extents.clone();
        extents[at] = extents[at].sub_range(part.first, part.len);
        ProbeBlock { extents, elements, ..*self }
    }

    /// Returns the block, which has one element along `dim`, with a second one: the halves of the numbers of the first
    /// element, which have the same sign and range.
    fn with_neighbor(&self, dim: &DimInfo, both: Extent) -> ProbeBlock {
        let Some(at) = self.position(dim) else { return self.clone() };
        let inner = local_len(&self.extents[at + 1..]);
        let rows = self.elements.chunks(inner.max(1));
        let pairs = rows.flat_map(|row| row.iter().copied().chain(row.iter().map(|x| x / 2.0)));
        let mut extents = self.extents.clone();
        extents[at] = both;
        ProbeBlock { extents, elements: pairs.collect(), ..*self }
    }

    fn upload_block(&self, rank: &Rank) -> Buffer {
        let mut data = rank.alloc_scratch(self.dtype, self.elements.len());
        rank.backend().cast(rank.stage_values(&self.elements).view(), data.view_mut());
        data
    }
}

/// Operands of a call.
pub(super) struct Probe<I: Shapes, P: Shapes> {
    pub(super) inputs: PerOperand<I, ProbeBlock>,
    pub(super) params: PerOperand<P, ProbeBlock>,
    /// Local extents of the output.
    pub(super) output: Vec<Extent>,
}

/// Results of a call.
pub(super) struct ProbeResults {
    pub(super) output: ProbeBlock,
    /// The gradients that backward has written, by name of the operand.
    pub(super) gradients: Vec<(String, ProbeBlock)>,
}

impl<I: Shapes, P: Shapes> Probe<I, P> {
    /// Returns the number of elements of this rank along `dim`, a dim of an operand or of the output shaped `dims`.
    pub(super) fn extent_along(&self, dims: &[DimInfo], dim: &DimInfo) -> Option<Extent> {
        let blocks = self.inputs.as_ref().iter().chain(self.params.as_ref());
        let of_operands = blocks.map(|block| (block.dims, &block.extents[..]));
        let mut all = of_operands.chain([(dims, &self.output[..])]);
        all.find_map(|(dims, extents)| {
            dims.iter()
                .zip(extents)
                .find_map(|(other, extent)| other.is_same_dim(dim).then_some(*extent))
        })
    }

    /// Returns the call with operands of `draw`.
    pub(super) fn with_draw(&self, draw: Draw, dim: Option<&DimInfo>) -> Probe<I, P> {
        let (inputs, params) = (self.inputs.as_ref(), self.params.as_ref());
        let block = |block: &ProbeBlock, operand: usize| match draw {
            Draw::Real => block.clone(),
            _ => block.with_made_up(draw, operand, dim),
        };
        Probe {
            inputs: I::Count::from_fn(|i| block(&inputs[i], i)),
            params: P::Count::from_fn(|i| block(&params[i], inputs.len() + i)),
            output: self.output.clone(),
        }
    }

    /// Returns the call with part of the elements; `dims` are the dims of the output.
    pub(super) fn part_along(&self, dims: &[DimInfo], part: &ProbePart<'_>) -> Probe<I, P> {
        let mut output = self.output.clone();
        for (dim, extent) in dims.iter().zip(&mut output) {
            if dim.is_same_dim(part.dim) {
                *extent = extent.sub_range(part.first, part.len);
            }
        }
        Probe {
            inputs: I::Count::map_ref(&self.inputs, |block| block.part_along(part)),
            params: P::Count::map_ref(&self.params, |block| block.part_along(part)),
            output,
        }
    }

    /// Returns the call, which has one element along `dim` on this rank, with a second one; both have the extent
    /// `both`.
    pub(super) fn with_neighbor(
        &self,
        dims: &[DimInfo],
        dim: &DimInfo,
        both: Extent,
    ) -> Probe<I, P> {
        let extent =
            |(other, own): (&DimInfo, &Extent)| if other.is_same_dim(dim) { both } else { *own };
        Probe {
            inputs: I::Count::map_ref(&self.inputs, |block| block.with_neighbor(dim, both)),
            params: P::Count::map_ref(&self.params, |block| block.with_neighbor(dim, both)),
            output: dims.iter().zip(&self.output).map(extent).collect(),
        }
    }
}

/// The forward pass of a call, with what its backward pass reads.
pub(super) struct ProbeForward<I: Shapes, P: Shapes, S> {
    inputs: PerOperand<I, Buffer>,
    params: PerOperand<P, Buffer>,
    output: Buffer,
    saved: S,
}

impl<I: Shapes, P: Shapes, S> ProbeForward<I, P, S> {
    /// Returns true if the output has the bits of that of `other`.
    pub(super) fn has_output_of(&self, rank: &Rank, other: &Self) -> bool {
        have_same_bits(&rank.read(self.output.view()), &rank.read(other.output.view()))
    }
}

impl ProbeResults {
    /// Returns the first operand whose gradient has other bits than in `other`.
    pub(super) fn differing_gradient(&self, other: &ProbeResults) -> Option<&str> {
        let mut pairs = self.gradients.iter().zip(&other.gradients);
        let (found, _) =
            pairs.find(|((_, own), (_, other))| !have_same_bits(&own.elements, &other.elements))?;
        Some(&found.0)
    }
}

fn have_same_bits(one: &[f32], other: &[f32]) -> bool {
    one.iter().zip(other).all(|(one, other)| one.to_bits() == other.to_bits())
}

impl<F: Function<I, P>, I: Shapes, P: Shapes> FunctionOperation<F, I, P> {
    /// Calls forward.
    pub(super) fn run_forward_probe(
        &self,
        rank: &Rank,
        probe: &Probe<I, P>,
    ) -> ProbeForward<I, P, F::Saved> {
        let path = self.function.path();
        let name = |role| OperandName::new(rank, path, role);
        let upload = |block: &ProbeBlock| block.upload_block(rank);
        let inputs = I::Count::map_ref(&probe.inputs, upload);
        let params = P::Count::map_ref(&probe.params, upload);
        let input_extents = I::Count::map_ref(&probe.inputs, |block| block.extents.clone());
        let param_extents = P::Count::map_ref(&probe.params, |block| block.extents.clone());
        let mut output = rank.alloc_scratch(rank.compute_dtype(), local_len(&probe.output));
        let saved = self.function.forward_pass(Forward {
            inputs: operand_views::<I::Count>(name("input"), &input_extents, |i| {
                Some(inputs.as_ref()[i].view())
            }),
            params: operand_views::<P::Count>(name("parameter"), &param_extents, |i| {
                Some(params.as_ref()[i].view())
            }),
            output: ResultView { view: output.view_mut(), extents: &probe.output, rank },
            context: FunctionContext { rank, path },
        });
        ProbeForward { inputs, params, output, saved }
    }

    /// Returns the results of a forward pass, and of its backward if `backward` has the inputs whose gradients are
    /// required, in addition to all parameters, and the gradient of the output.
    pub(super) fn finish_probe(
        &self,
        rank: &Rank,
        probe: &Probe<I, P>,
        forward: ProbeForward<I, P, F::Saved>,
        backward: Option<(&PerOperand<I, bool>, &ProbeBlock)>,
    ) -> ProbeResults {
        let ProbeForward { inputs, params, output, saved } = forward;
        let path = self.function.path();
        let name = |role| OperandName::new(rank, path, role);
        let context = FunctionContext { rank, path };
        let input_extents = I::Count::map_ref(&probe.inputs, |block| block.extents.clone());
        let param_extents = P::Count::map_ref(&probe.params, |block| block.extents.clone());
        let dims = <F::Output as FunctionOutput>::Shape::DIMS;
        let result = ProbeBlock::read(rank, dims, &probe.output, output.view());
        let Some((requires_grad, output_gradient)) = backward else {
            return ProbeResults { output: result, gradients: Vec::new() };
        };
        let saved = saved.into_shared();
        let output_gradient = output_gradient.upload_block(rank);
        let zeros = |dtype, len| rank.allocator().zeros(dtype, len, Category::Workspace);
        let mut of_inputs = GradientBuffers::<I::Count>::new(|i| {
            let len = inputs.as_ref()[i].len();
            requires_grad.as_ref()[i].then(|| zeros(rank.compute_dtype(), len))
        });
        let mut of_params =
            GradientBuffers::<P::Count>::new(|i| Some(zeros(DType::F32, params.as_ref()[i].len())));
        let of_output = |role, view| OperandView { view, extents: &probe.output, name: name(role) };
        self.function.backward_pass(Backward {
            inputs: operand_views::<I::Count>(name("input"), &input_extents, |i| {
                self.reads.inputs.as_ref()[i].then(|| inputs.as_ref()[i].view())
            }),
            params: operand_views::<P::Count>(name("parameter"), &param_extents, |i| {
                self.reads.params.as_ref()[i].then(|| params.as_ref()[i].view())
            }),
            output: of_output("output", self.reads.output.then(|| output.view())),
            output_gradient: of_output("output gradient", Some(output_gradient.view())),
            saved: F::Saved::saved_views(&saved),
            input_gradients: of_inputs.gradient_targets(rank, &input_extents),
            param_gradients: of_params.gradient_targets(rank, &param_extents),
            context,
        });
        let of_inputs = of_inputs.into_taken().into_iter().zip(probe.inputs.as_ref()).enumerate();
        let of_params = of_params.into_taken().into_iter().zip(probe.params.as_ref()).enumerate();
        let named = [("input", of_inputs.collect::<Vec<_>>()), ("parameter", of_params.collect())];
        let gradients = named.into_iter().flat_map(|(role, gradients)| {
            let read = move |(i, (data, operand)): (usize, (Option<Buffer>, &ProbeBlock))| {
                let block = ProbeBlock::read(rank, operand.dims, &operand.extents, data?.view());
                Some((format!("{role} {i}"), block))
            };
            gradients.into_iter().filter_map(read)
        });
        ProbeResults { output: result, gradients: gradients.collect() }
    }
}
