//! Application of an operation to its operands.

use std::sync::Arc;

use super::super::param_use::ParamUse;
use super::super::tape::Dependencies;
use super::super::value::Value;
use super::arity::Arity;
use super::operands::{Operands, OperationInput, OperationParam, SavedInput};
use super::operation::{Operation, OperationBackward, OperationForward};
use super::saved_results::SavedResults;

/// Computes `operation`, and records it for backward if an input or a parameter requires a gradient.
#[track_caller]
pub(crate) fn apply<O, X: Arity, P: Arity>(operation: O, operands: Operands<'_, X, P>) -> Value
where
    O: Operation<X, P>,
{
    let Operands { rank, path, inputs, params, extents } = operands;
    for input in inputs.as_ref() {
        rank.check_same(input.value().rank());
        input.value().check_read();
    }
    // Loops, because a function that is passed as a value loses the caller location of `#[track_caller]`.
    for param in params.as_ref() {
        rank.check_same(param.param.rank());
        param.param.check_owned();
        rank.segments().note_param(param.param.path());
    }
    for input in inputs.as_ref() {
        input.compute_before_params();
    }
    let values = P::map_ref(&params, |param| param.param.read(param.gradient_axes));
    let recorded = rank.records_operations();
    let (output, saved) = O::Saved::saved_or_compute(rank, path, || {
        let (mut output, results) = operation.forward(OperationForward {
            rank,
            inputs: X::map_ref(&inputs, |input| input.value()),
            params: P::map_ref(&values, |values| values.view()),
            recorded,
        });
        rank.round_with_noise(&mut output);
        (output, results)
    });
    drop(values);
    if recorded {
        // A deferred sum too, which the kernel has not computed if a segment has saved the output.
        for input in inputs.as_ref() {
            input.value().compute();
        }
    }
    let has_gradient = |input: &OperationInput<'_>| input.value().requires_grad();
    let is_trained = |param: &OperationParam<'_>| !param.param.is_frozen();
    let requires_grad =
        params.as_ref().iter().any(is_trained) || inputs.as_ref().iter().any(has_gradient);
    let node = (recorded && requires_grad).then(|| {
        let inputs = X::map_ref(&inputs, OperationInput::save);
        let params = P::map_ref(&params, OperationParam::begin_use);
        let saved_output = operation.saves_output().then(|| Arc::clone(&output));
        let sources = inputs.as_ref().iter().filter_map(SavedInput::source);
        let uses = params.as_ref().iter().map(ParamUse::unit_use);
        let dependencies = Dependencies::on(sources).with_uses(uses);
        rank.tape().record(dependencies, move |gradients, gradient| {
            let backward =
                OperationBackward { gradients, inputs, params, output: saved_output, gradient };
            operation.backward(backward, saved);
        })
    });
    let segment = rank.segments().in_forward().filter(|_| requires_grad);
    let read = inputs.as_ref().iter().map(|input| input.value());
    Value::ready(rank, extents, output, node, segment).with_origin(read)
}
