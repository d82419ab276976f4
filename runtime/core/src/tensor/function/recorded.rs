//! A user-defined function as an untyped operation: views for its kernels, and buffers for its results.

use std::cell::RefCell;
use std::panic::Location;
use std::sync::Arc;

use crate::autograd::{Arity, Operation, OperationBackward, OperationForward, SavedResults};
use crate::context::Rank;
use meshwright_backend::{Buffer, DType, View};
use meshwright_mesh::__internal::local_len;
use meshwright_mesh::Extent;

use super::calls::{Backward, Forward, FunctionContext};
use super::definition::{BackwardReads, Function};
use super::gradient_target::GradientBuffers;
use super::operands::{OperandName, OperandView, ResultView};
use super::saved::SavedBuffers;
use super::shapes::{PerOperand, Shapes};
use crate::promise::{CallCheck, CallKey};

/// A function with the local extents of its operands and its output.
pub(super) struct FunctionOperation<F, I: Shapes, P: Shapes> {
    pub(super) function: F,
    pub(super) reads: BackwardReads<I, P>,
    pub(super) inputs: PerOperand<I, Vec<Extent>>,
    pub(super) params: PerOperand<P, Vec<Extent>>,
    /// True for parameters that are trained.
    pub(super) trained: PerOperand<P, bool>,
    pub(super) output: Vec<Extent>,
    /// The line of the program that applies the function.
    pub(super) called_at: &'static Location<'static>,
    /// The mistake of backward that a check of the forward has found.
    pub(super) mistake: RefCell<Option<String>>,
}

impl<F, I: Shapes, P: Shapes> Operation<I::Count, P::Count> for FunctionOperation<F, I, P>
where
    F: Function<I, P>,
{
    type Saved = <F::Saved as SavedBuffers>::Shared;

    fn forward(
        &self,
        forward: OperationForward<'_, I::Count, P::Count>,
    ) -> (Buffer, <Self::Saved as SavedResults>::Computed) {
        let OperationForward { rank, inputs: operands, params, recorded } = forward;
        let path = self.function.path();
        let [input, param, output] =
            ["input", "parameter", "output"].map(|role| OperandName::new(rank, path, role));
        let inputs = I::Count::map_ref(&operands, |input| input.compute().data);
        let mut result = rank.alloc_activation(local_len(&self.output));
        // In the forward of a checkpointed segment too, whose backward may take the saved output.
        let has_backward = rank.is_training();
        let requires_grad =
            I::Count::map_ref(&operands, |input| has_backward && input.requires_grad());
        let requires_any = requires_grad.as_ref().contains(&true)
            || (has_backward && self.trained.as_ref().contains(&true));
        let required = requires_grad.as_ref().iter().map(|required| usize::from(*required));
        let results = required.chain([usize::from(requires_any), result.len()]).collect();
        let check = self.begin_check(rank, "forward", results);
        if let Some(options) = self.function.options() {
            let name = format!("the options of `{path}`");
            rank.declared_values().note_setting(&name, self.called_at, || options);
        }
        check.mark_unwritten(&mut result);
        let saved = self.saved_if_skipped(rank).unwrap_or_else(|| {
            self.function.forward_pass(Forward {
                inputs: operand_views::<I::Count>(input, &self.inputs, |i| {
                    Some(inputs.as_ref()[i].view())
                }),
                params: operand_views::<P::Count>(param, &self.params, |i| {
                    Some(params.as_ref()[i])
                }),
                output: ResultView { view: result.view_mut(), extents: &self.output, rank },
                context: FunctionContext { rank, path },
            })
        });
        check.check_written(&result, output);
        if check.is_checked() {
            let inputs = I::Count::from_fn(|i| inputs.as_ref()[i].view());
            let requires_grad = requires_any.then_some(requires_grad);
            match self.check_call(rank, check, &inputs, &params, requires_grad) {
                // After the mistakes that the real backward shows.
                Some(mistake) if recorded => self.mistake.replace(Some(mistake)),
                Some(mistake) => self.refuse(&mistake),
                None => None,
            };
        }
        (result, saved.into_computed())
    }

    fn saves_output(&self) -> bool {
        self.reads.output
    }

    fn backward(self, backward: OperationBackward<'_, '_, I::Count, P::Count>, saved: Self::Saved) {
        let OperationBackward { gradients, mut inputs, params, output, gradient } = backward;
        let (rank, path) = (gradients.rank, self.function.path());
        let name = |role| OperandName::new(rank, path, role);
        let data = I::Count::map_mut(&mut inputs, |input| input.take_data(rank));
        let values = P::Count::from_fn(|i| {
            self.reads.params.as_ref()[i].then(|| params.as_ref()[i].param().values())
        });
        let mut input_gradients = GradientBuffers::<I::Count>::new(|i| {
            let requires_grad = inputs.as_ref()[i].requires_grad();
            requires_grad.then(|| rank.alloc_activation(local_len(&self.inputs.as_ref()[i])))
        });
        let mut param_gradients = GradientBuffers::<P::Count>::new(|i| {
            let len = local_len(&self.params.as_ref()[i]);
            self.trained.as_ref()[i].then(|| rank.alloc_scratch(DType::F32, len))
        });
        let lens = input_gradients.gradient_lens().chain(param_gradients.gradient_lens()).collect();
        let check = self.begin_check(rank, "backward", lens);
        input_gradients.mark_unwritten(check);
        param_gradients.mark_unwritten(check);
        if self.saved_if_skipped(rank).is_some() {
            input_gradients.take_all();
            param_gradients.take_all();
        } else {
            let result = |role, view| OperandView { view, extents: &self.output, name: name(role) };
            self.function.backward_pass(Backward {
                inputs: operand_views::<I::Count>(name("input"), &self.inputs, |i| {
                    data.as_ref()[i].as_ref().map(|data| data.view())
                }),
                params: operand_views::<P::Count>(name("parameter"), &self.params, |i| {
                    values.as_ref()[i].as_ref().map(|values| values.view())
                }),
                output: result("output", output.as_ref().map(|output| output.view())),
                output_gradient: result("output gradient", Some(gradient.view())),
                saved: F::Saved::saved_views(&saved),
                input_gradients: input_gradients.gradient_targets(rank, &self.inputs),
                param_gradients: param_gradients.gradient_targets(rank, &self.params),
                context: FunctionContext { rank, path },
            });
        }
        drop(values);
        let input_gradients = input_gradients.into_written(name("input"), check);
        for (input, gradient) in inputs.into_iter().zip(input_gradients) {
            if let Some(gradient) = gradient {
                input.add_gradient(gradients, Arc::new(gradient));
            }
        }
        let param_gradients = param_gradients.into_written(name("parameter"), check);
        if let Some(mistake) = self.mistake.take() {
            self.refuse(&mistake);
        }
        for (param_use, gradient) in params.into_iter().zip(param_gradients) {
            if let Some(gradient) = gradient {
                param_use.finish_with(gradients, &gradient);
            }
        }
    }
}

impl<F: Function<I, P>, I: Shapes, P: Shapes> FunctionOperation<F, I, P> {
    fn begin_check(&self, rank: &Rank, pass: &'static str, results: Vec<usize>) -> CallCheck {
        let (path, called_at) = (self.function.path(), self.called_at);
        let key = CallKey { path, called_at, pass, results };
        CallCheck::new::<Self>(rank, &key, self.function.options().as_deref())
    }

    /// Returns what is saved if the function is not called: in a dry run, with operands on which it would compute for
    /// long, in memory that a dry run does not take. A function that saves buffers is called, as they are part of the
    /// memory plan.
    fn saved_if_skipped(&self, rank: &Rank) -> Option<F::Saved> {
        const CALLED_WITH: usize = 1 << 20;
        let operands = self.inputs.as_ref().iter().chain(self.params.as_ref());
        let elements: usize = operands.chain([&self.output]).map(|of| local_len(of)).sum();
        let skips = rank.backend().is_dry_run() && elements > CALLED_WITH;
        if skips { F::Saved::nothing() } else { None }
    }
}

/// Returns a view of each operand.
pub(super) fn operand_views<'a, C: Arity>(
    name: OperandName<'a>,
    extents: &'a C::Array<Vec<Extent>>,
    view: impl Fn(usize) -> Option<View<'a>>,
) -> C::Array<OperandView<'a>> {
    C::from_fn(|i| OperandView {
        view: view(i),
        extents: &extents.as_ref()[i],
        name: name.numbered(i),
    })
}
