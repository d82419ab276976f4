use meshwright::__private::*;
use meshwright_macros::{dims, forward, model};

dims! { Batch @ dp, Seq, Hidden }

#[model]
pub struct Block<M, Ffn: Whole, Along: Whole = Seq, const N: usize = 2>
where
    M: Module,
{
    norm: RmsNorm<Hidden>,
    inner: Stack<M, N>,
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "row", scatter = Along)]
    down: Linear<Hidden, Hidden>,
}

#[forward]
impl<M, Ffn: Whole, Along: Whole, const N: usize> Block<M, Ffn, Along, N>
where
    M: Module<In = Tensor<(Batch, Seq, Hidden)>, Out = Tensor<(Batch, Seq, Hidden)>>,
{
    fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Seq, Split<Ffn, Tp>)> {
        let mut y = self.norm.forward(x);
        for block in &self.inner.0 {
            y = block.forward(&y);
        }
        self.up.forward(&y)
    }
}
