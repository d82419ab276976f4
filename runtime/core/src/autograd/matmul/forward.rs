//! Matmul of a tensor and a weight: deferred until its numbers are needed, so that an epilogue can be fused.
//!
//! A device adds a bias, and applies GELU, in the epilogue of a matmul, which saves passes over its result. So on such
//! a device a matmul is deferred. If an expression needs its numbers that begins with `+ bias`, or with `(.. +
//! bias).gelu_tanh()`, and the matmul has no other reader, both are computed by one kernel.

use std::rc::Rc;
use std::sync::Arc;

use crate::context::Rank;
use crate::fsdp::{DeferredParam, InBackward};
use crate::layout::AxisSet;
use meshwright_backend::{Buffer, Gemm, GemmEpilogue, View};
use meshwright_comm::Site;
use meshwright_mesh::Extent;

use super::super::activation_checkpointing::CheckpointedSegment;
use super::super::function::SavedInput;
use super::super::param_use::ParamUse;
use super::super::tape::NodeId;
use super::super::tensor_parallel::RegionExit;
use super::super::value::{Computed, DeferredIn, DeferredOp, Value};
use super::backward::{MatmulBackward, MatmulDims, backward_gelu};
use super::epilogue::{bias_expr, gelu_expr};

/// Matmul of a tensor that has entered its tensor-parallel region with a weight: `x[m, k] · weight[k, n]`.
pub(in super::super) struct Matmul {
    pub x: Value,
    pub weight: DeferredParam,
    /// The axes over which the weight's gradient is partial.
    pub gradient_axes: AxisSet,
    pub dims: MatmulDims,
    /// Exit of the result from the region.
    pub exit: Rc<RegionExit>,
    pub site: Site,
}

/// Epilogue of a matmul: a bias added to each row, and optionally GELU.
pub(in super::super) struct BiasEpilogue<'a> {
    pub bias: &'a DeferredParam,
    /// The axes over which the bias's gradient is partial.
    pub gradient_axes: AxisSet,
    pub gelu: bool,
}

impl Matmul {
    fn rank(&self) -> &Rank {
        self.x.rank()
    }

    /// Creates the value of the matmul: deferred if an epilogue may be fused, because the result stays in its region
    /// and the backend has epilogues.
    pub(in super::super) fn into_value(self, extents: Vec<Extent>) -> Value {
        let rank = self.rank().clone();
        if self.exit.is_stay() && rank.backend().has_epilogues() {
            let unrecorded_in = self.unrecorded_in();
            return Value::defer_op(&rank, extents, self, unrecorded_in);
        }
        let Computed { data, node } = self.compute_alone(rank.records_operations(), None);
        Value::ready(&rank, extents, data, node, self.unrecorded_in())
    }

    /// Returns the checkpointed segment in whose forward the matmul is computed, if it requires a gradient.
    fn unrecorded_in(&self) -> Option<Rc<CheckpointedSegment>> {
        self.rank().segments().in_forward().filter(|_| self.requires_grad())
    }

    /// Returns true if the weight is trained.
    fn is_weight_trained(&self) -> bool {
        !self.weight.param.is_frozen()
    }

    fn gemm(&self) -> Gemm {
        let MatmulDims { m, n, k, transposed } = self.dims;
        Gemm { m, n, k, trans_a: false, trans_b: transposed, accumulate: false }
    }

    fn result_len(&self) -> usize {
        self.dims.m * self.dims.n
    }

    /// Saves the operands for backward; `source` has computed `x`.
    fn backward(&self, source: Option<NodeId>) -> MatmulBackward {
        let in_backward = if source.is_some() { InBackward::Reads } else { InBackward::Ignores };
        let weight = ParamUse::of_deferred(&self.weight, self.gradient_axes, in_backward);
        // The gradient of the weight alone reads it.
        let saved = self.is_weight_trained().then(|| self.x.save());
        let x = SavedInput::new(saved, source);
        MatmulBackward { x, weight, dims: self.dims }
    }

    /// Computes the matmul without epilogue, after which it leaves the region, unless its result is `known`.
    fn compute_alone(&self, recorded: bool, known: Option<Arc<Buffer>>) -> Computed {
        let rank = self.rank();
        let input = self.x.compute_with_node();
        let values = self.weight.read(self.gradient_axes);
        let compute = || {
            rank.segments().saved_or_compute(self.weight.param.path(), || {
                let mut out = rank.alloc_activation(self.result_len());
                let (x, weight) = (input.data.view(), values.view());
                rank.backend().gemm(&self.gemm(), x, weight, out.view_mut());
                rank.round_with_noise(&mut out);
                (self.exit.forward(rank, out, &self.site), [])
            })
        };
        let data = known.unwrap_or_else(|| compute().0);
        drop(values);
        let requires_grad = input.node.is_some() || self.is_weight_trained();
        let node = (recorded && requires_grad).then(|| {
            let (backward, exit) = (self.backward(input.node), Rc::clone(&self.exit));
            rank.tape().record(backward.dependencies(None), move |gradients, dy| {
                let dy = exit.backward(gradients.rank, dy);
                backward.run_backward(gradients, dy, None);
            })
        });
        Computed { data, node }
    }

    /// Computes the matmul with an epilogue, in one kernel if the device has it.
    ///
    /// The pre-activation, which GELU is applied to, is saved for backward or by a checkpointed segment.
    fn compute_with_epilogue(&self, epilogue: &BiasEpilogue<'_>, recorded: bool) -> Computed {
        let rank = self.rank();
        let input = self.x.compute_with_node();
        let recorded = recorded && (input.node.is_some() || self.has_trained(epilogue));
        let path = self.weight.param.path();
        let is_saved = recorded || rank.segments().saves(path);
        let (values, bias) =
            (self.weight.read(self.gradient_axes), epilogue.bias.read(epilogue.gradient_axes));
        let forward = |out: &mut Buffer, preactivation: Option<&mut Buffer>| {
            let operands = (values.view(), bias.view());
            self.forward_with_epilogue(&input.data, operands, epilogue.gelu, out, preactivation);
        };
        let alloc_result = || rank.alloc_activation(self.result_len());
        // The result of GELU, if it is computed together with the matmul.
        let mut activated = None;
        let sum = (is_saved || !epilogue.gelu).then(|| {
            let (sum, []) = rank.segments().saved_or_compute(path, || {
                let mut sum = alloc_result();
                if epilogue.gelu {
                    forward(activated.insert(alloc_result()), Some(&mut sum));
                } else {
                    forward(&mut sum, None);
                }
                (sum, [])
            });
            sum
        });
        let data = match &sum {
            Some(sum) if !epilogue.gelu => Arc::clone(sum),
            sum => Arc::new(activated.unwrap_or_else(|| {
                let mut out = alloc_result();
                match sum {
                    // A checkpointed segment has saved it.
                    Some(sum) => rank.backend().map(&gelu_expr(), &[sum.view()], out.view_mut()),
                    None => forward(&mut out, None),
                }
                out
            })),
        };
        drop((values, bias));
        let node = recorded.then(|| {
            let backward = self.backward(input.node);
            let BiasEpilogue { bias, gradient_axes, .. } = *epilogue;
            let bias = ParamUse::of_deferred(bias, gradient_axes, InBackward::Ignores);
            let preactivation = sum.filter(|_| epilogue.gelu);
            rank.tape().record(backward.dependencies(Some(&bias)), move |gradients, dy| {
                let (dy, bias) = match preactivation {
                    Some(preactivation) => backward_gelu(gradients, preactivation, dy, bias),
                    None => (dy, Some(bias)),
                };
                backward.run_backward(gradients, dy, bias);
            })
        });
        Computed { data, node }
    }

    /// Returns true if the weight or the bias of an epilogue is trained.
    fn has_trained(&self, epilogue: &BiasEpilogue<'_>) -> bool {
        self.is_weight_trained() || !epilogue.bias.param.is_frozen()
    }

    /// Writes `x · weight + bias` to `out`, or with `gelu` its result to `out` and the pre-activation to
    /// `preactivation`.
    fn forward_with_epilogue(
        &self,
        x: &Buffer,
        (weight, bias): (View<'_>, View<'_>),
        gelu: bool,
        out: &mut Buffer,
        mut preactivation: Option<&mut Buffer>,
    ) {
        let rank = self.rank();
        let (backend, gemm) = (rank.backend(), self.gemm());
        let epilogue = if gelu {
            let aux = preactivation.as_mut().map(|buffer| buffer.view_mut());
            GemmEpilogue::BiasGelu { bias, pre_activation: aux }
        } else {
            GemmEpilogue::Bias(bias)
        };
        if backend.gemm_with_epilogue(&gemm, x.view(), weight, epilogue, out.view_mut()) {
            return;
        }
        let mut product = rank.alloc_activation(self.result_len());
        backend.gemm(&gemm, x.view(), weight, product.view_mut());
        match preactivation {
            Some(sum) => {
                backend.map(&bias_expr(false), &[product.view(), bias], sum.view_mut());
                backend.map(&gelu_expr(), &[sum.view()], out.view_mut());
            }
            None => backend.map(&bias_expr(gelu), &[product.view(), bias], out.view_mut()),
        }
    }
}

impl DeferredOp for Matmul {
    fn compute(
        &mut self,
        _: &Rank,
        _: usize,
        recorded: bool,
        known: Option<Arc<Buffer>>,
    ) -> Computed {
        self.compute_alone(recorded, known)
    }

    /// The result stays in its region, as that of every matmul that is deferred.
    fn peek(&self, rank: &Rank, len: usize) -> Buffer {
        let mut out = rank.alloc_activation(len);
        let (x, weight) = (self.x.look(), self.weight.peek());
        rank.backend().gemm(&self.gemm(), x.view(), weight.view(), out.view_mut());
        out
    }

    fn reads_params(&self) -> bool {
        true
    }

    fn requires_grad(&self) -> bool {
        self.is_weight_trained() || self.x.requires_grad()
    }
}

impl Value {
    /// Returns true if the value is a deferred matmul.
    pub(in super::super) fn is_deferred_matmul(&self) -> bool {
        self.with_deferred(|_: &mut Matmul, _| ()).is_some()
    }

    /// Returns true if the value is a deferred matmul that [may be fused](DeferredIn::is_fusable).
    pub(in super::super) fn is_fusable_matmul(&self) -> bool {
        let is_fusable = |_: &mut Matmul, created: DeferredIn| created.is_fusable(self.rank());
        self.with_deferred(is_fusable) == Some(true)
    }

    /// Computes a deferred matmul with an epilogue. Returns `None` if the bias is not one for each column, or the
    /// matmul has other readers.
    pub(in super::super) fn with_bias(&self, epilogue: &BiasEpilogue<'_>) -> Option<Value> {
        let is_shared = self.is_shared();
        let computed = self.with_deferred(|matmul: &mut Matmul, created| {
            let requires_grad = matmul.x.requires_grad() || matmul.has_trained(epilogue);
            (!is_shared && epilogue.bias.param.local_len() == matmul.dims.n)
                .then(|| (matmul.compute_with_epilogue(epilogue, created.recorded), requires_grad))
        });
        let (Computed { data, node }, requires_grad) = computed??;
        let segment = self.rank().segments().in_forward().filter(|_| requires_grad);
        Some(Value::ready(self.rank(), self.extents().to_vec(), data, node, segment))
    }
}
