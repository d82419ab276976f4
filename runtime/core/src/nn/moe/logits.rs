//! The logits of a router: the matmul of its tokens and its weight, in f32.

use std::sync::Arc;

use crate::layout::AxisSet;
use crate::tensor::{
    AlwaysRecomputed, Count, Extent, InBackward, Operands, Operation, OperationBackward,
    OperationForward, OperationInput, OperationParam, ParamRef, Rank, Value, apply,
};
use meshwright_backend::{Buffer, DType, Gemm};
use meshwright_mesh::__internal::local_len;

/// Computes the logits of each token of `x` for each expert, in f32 for every compute dtype.
#[track_caller]
pub(super) fn router_logits(x: &Value, weight: &ParamRef, gradient_axes: AxisSet) -> Value {
    let (tokens, read) = x.extents().split_at(x.extents().len() - 1);
    let experts = weight.local_extents()[1];
    let operation =
        Logits { tokens: local_len(tokens), read: read[0].local, experts: experts.local };
    let param = OperationParam { param: weight, gradient_axes, in_backward: InBackward::Reads };
    let operands = Operands::<Count<1>, Count<1>> {
        rank: x.rank(),
        path: weight.path(),
        inputs: [OperationInput::new(x, InBackward::Reads)],
        params: [param],
        extents: [tokens, &[Extent::whole(experts.global)]].concat(),
    };
    apply(operation, operands)
}

struct Logits {
    tokens: usize,
    read: usize,
    experts: usize,
}

impl Operation<Count<1>, Count<1>> for Logits {
    type Saved = AlwaysRecomputed<()>;

    fn forward(&self, forward: OperationForward<'_, Count<1>, Count<1>>) -> (Buffer, ()) {
        let OperationForward { rank, inputs: [x], params: [weight], .. } = forward;
        let x = x.compute().data;
        let mut logits = rank.alloc_statistics(self.tokens * self.experts);
        let gemm = self.gemm();
        rank.backend().gemm(&gemm, x.view(), weight, logits.view_mut());
        (logits, ())
    }

    fn backward(
        self,
        backward: OperationBackward<'_, '_, Count<1>, Count<1>>,
        _: AlwaysRecomputed<()>,
    ) {
        let OperationBackward { gradients, inputs: [mut x], params: [weight], gradient, .. } =
            backward;
        let rank = gradients.rank;
        let dlogits = in_compute_dtype(rank, gradient);
        if let Some(source) = x.source() {
            let values = weight.param().values();
            gradients.accumulate(source, self.tokens * self.read, |dx, accumulate| {
                let gemm = Gemm {
                    n: self.read,
                    k: self.experts,
                    trans_b: true,
                    accumulate,
                    ..self.gemm()
                };
                rank.backend().gemm(&gemm, dlogits.view(), values.view(), dx);
            });
        }
        let x = x.take_saved(rank);
        gradients.weight_gradient(move |gradients| {
            weight.finish_use(gradients, |dw, accumulate| {
                let gemm =
                    Gemm { m: self.read, k: self.tokens, trans_a: true, accumulate, ..self.gemm() };
                gradients.rank.backend().gemm(&gemm, x.view(), dlogits.view(), dw);
            });
        });
    }
}

impl Logits {
    fn gemm(&self) -> Gemm {
        let Logits { tokens: m, read: k, experts: n } = *self;
        Gemm { m, n, k, trans_a: false, trans_b: false, accumulate: false }
    }
}

/// Returns a gradient in f32 as an operand of matmuls with activations.
fn in_compute_dtype(rank: &Rank, gradient: Arc<Buffer>) -> Arc<Buffer> {
    if rank.compute_dtype() == DType::F32 {
        return gradient;
    }
    let mut narrow = rank.alloc_activation(gradient.len());
    rank.backend().cast(gradient.view(), narrow.view_mut());
    Arc::new(narrow)
}
