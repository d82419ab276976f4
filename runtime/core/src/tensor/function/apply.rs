//! Application of a function to typed operands.

use std::cell::RefCell;
use std::panic::Location;

use crate::autograd::{
    self, Arity, Operands, OperationInput, OperationParam, Value, gradient_axes, tensor_parallel,
};
use crate::context::Rank;
use crate::fsdp::InBackward;
use crate::layout::{
    AxesCovered, AxisSet, Dims, Distinct, Entry, Internal, OneDimPerAxis, Seal, UsageSet,
};
use meshwright_comm::Site;

use super::super::FromValue;
use super::definition::Function;
use super::extents::{OperandDims, check_dims_agree, check_distribution, output_extents};
use super::operands::{FunctionInputs, FunctionParams};
use super::output::FunctionOutput;
use super::recorded::FunctionOperation;
use super::shapes::Shapes;

/// A function whose shapes fit each other: the output is distributed over every axis that distributes an operand, or
/// partial over it.
///
/// It holds for all such functions. Code that is generic in dims states it as a bound:
/// `where Gate: AppliesTo<((B, S, H),), ((H,),)>`.
pub trait AppliesTo<I: Shapes, P: Shapes> {
    #[doc(hidden)]
    const SEAL: Seal;
}

type OutputUsage<F, I, P> = <<F as Function<I, P>>::Output as FunctionOutput>::Usage;

impl<F: Function<I, P>, I: Shapes, P: Shapes> AppliesTo<I, P> for F
where
    <OutputUsage<F, I, P> as UsageSet>::Verdict:
        OneDimPerAxis<<F::Output as FunctionOutput>::Shape>,
    I::CoveredBy<OutputUsage<F, I, P>, P::CoveredBy<OutputUsage<F, I, P>, Distinct>>:
        AxesCovered<F::Output>,
{
    const SEAL: Seal = Seal::new();
}

/// Computes `function` of `inputs` and `params`, each a tuple of references: `apply(gate, (&x,), (&self.weight,))`.
///
/// # Panics
/// If operands belong to different ranks, disagree in the size of a dim, or are distributed otherwise than the output;
/// and if the function leaves an element of a result unwritten, as far as its first calls show. Messages name the
/// function's path and the operand.
#[track_caller]
pub fn apply<F, X: FunctionInputs, W: FunctionParams>(
    function: F,
    inputs: X,
    params: W,
) -> <F as Function<X::Shapes, W::Shapes>>::Output
where
    F: Function<X::Shapes, W::Shapes> + AppliesTo<X::Shapes, W::Shapes>,
{
    type Output<F, X, W> =
        <F as Function<<X as FunctionInputs>::Shapes, <W as FunctionParams>::Shapes>>::Output;
    let (dims, partial_over) =
        (<Output<F, X, W> as FunctionOutput>::Shape::DIMS, Output::<F, X, W>::PARTIAL_OVER);
    let varies = <Output<F, X, W> as FunctionOutput>::Shape::VARIES.union(partial_over);
    let site = Site::new(function.path()).at_location(Location::caller());
    let path = site.field();

    let (values, params) = (inputs.values(), params.param_handles());
    let input_extents = <X::Shapes as Shapes>::Count::map_ref(&values, |x| x.extents().to_vec());
    let param_extents =
        <W::Shapes as Shapes>::Count::map_ref(&params, |param| param.local_extents().to_vec());
    let operands: Vec<OperandDims<'_>> = [
        ("input", X::Shapes::DIMS, input_extents.as_ref()),
        ("parameter", W::Shapes::DIMS, param_extents.as_ref()),
    ]
    .into_iter()
    .flat_map(|(role, dims, extents)| {
        dims.iter().zip(extents).enumerate().map(move |(index, (dims, extents))| OperandDims {
            name: format!("{role} {index}"),
            dims,
            extents,
        })
    })
    .collect();
    check_dims_agree(path, &operands);
    check_distribution(path, &operands, (dims, partial_over));
    // A result has the rows of the samples that it is computed from.
    let has_samples =
        |(axes, _): &(&AxisSet, &&Value)| !axes.intersection(AxisSet::DATA).is_empty();
    let of_samples = X::Shapes::VARIES.iter().zip(values.as_ref()).filter(has_samples);
    let ranks = of_samples.map(|(_, value)| value.rank());
    let rank = Rank::of_operands(ranks).unwrap_or_else(|| values.as_ref()[0].rank().clone());
    let extents = output_extents(&rank, path, &operands, dims, |dim| function.new_size(dim));
    drop(operands);

    let reads = function.backward_reads();
    let in_backward = |reads: bool| if reads { InBackward::Reads } else { InBackward::Ignores };
    let entered = <X::Shapes as Shapes>::Count::from_fn(|index| {
        let added = varies.difference(X::Shapes::VARIES[index]);
        enter_regions(values.as_ref()[index], added, &site)
    });
    let operands = Operands::<'_, <X::Shapes as Shapes>::Count, <W::Shapes as Shapes>::Count> {
        rank: &rank,
        path,
        inputs: <X::Shapes as Shapes>::Count::from_fn(|index| {
            OperationInput::new(&entered.as_ref()[index], in_backward(reads.inputs.as_ref()[index]))
        }),
        params: <W::Shapes as Shapes>::Count::from_fn(|index| OperationParam {
            param: params.as_ref()[index],
            gradient_axes: gradient_axes(varies, varies, W::Shapes::VARIES[index]),
            in_backward: in_backward(reads.params.as_ref()[index]),
        }),
        extents: extents.clone(),
    };
    let operation = FunctionOperation::<F, X::Shapes, W::Shapes> {
        function,
        reads,
        inputs: input_extents,
        params: param_extents,
        trained: <W::Shapes as Shapes>::Count::map_ref(&params, |param| !param.is_frozen()),
        output: extents,
        called_at: Location::caller(),
        mistake: RefCell::default(),
    };
    let value = autograd::apply(operation, operands);
    FromValue::from_value(value, site, Internal::new())
}

/// Returns the value inside of the regions of `axes`, over which the function varies and the value does not: its
/// gradient is summed over them.
#[track_caller]
fn enter_regions(value: &Value, axes: AxisSet, site: &Site) -> Value {
    axes.iter().fold(value.clone(), |value, axis| {
        tensor_parallel::enter_region(&value, Entry::Copy(axis), site)
    })
}
