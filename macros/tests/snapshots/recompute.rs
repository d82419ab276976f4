use meshwright::__private::*;
use meshwright_macros::{dims, forward, model};

dims! { Batch @ data, Seq @ cp, Hidden, Ffn }

#[model]
#[sharded(fsdp)]
pub struct Mlp {
    #[sharded(tp = "col", fsdp)]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "row")]
    down: Linear<Ffn, Hidden>,
}

#[model]
pub struct Block<M: Model> {
    #[recompute]
    mlp: Mlp,
    #[recompute(save = [inner], offload)]
    inner: Twice<M>,
}

#[model]
pub struct Twice<M> {
    inner: M,
}

#[model]
pub struct Tower {
    #[recompute(every = 2, save = [mlp, inner.inner.down], offload)]
    #[cfg(all())]
    blocks: Stack<Block<Mlp>, 3>,
    #[cfg(any())]
    #[recompute(every = "sqrt", save = [nothing])]
    others: Stack<DoesNotExist, 3>,
    #[sharded(fsdp)]
    #[recompute(every = "sqrt")]
    mlps: Stack<Mlp, 1>,
}

#[forward]
impl<M: Model> Block<M> {
    fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Seq, Hidden)> {
        self.mlp.forward(x)
    }
}

#[forward]
impl Mlp {
    fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Seq, Hidden)> {
        let _ = self.up.forward(x);
        Tensor::new()
    }
}
