use meshwright::prelude::*;

dims! { Batch @ data, Hidden, Ffn }

#[model]
struct Mlp {
    #[sharded(tp = "col")]
    up: Param<(Hidden, Ffn)>,
    #[sharded(tp = "row")]
    down: Param<(Ffn, Hidden)>,
}

#[forward]
impl Mlp {
    fn forward(&self, x: &Tensor<(Batch, Hidden)>) -> Tensor<(Batch, Hidden)> {
        (x + x.contract(&self.up).silu().contract(&self.down)).all_reduce()
    }
}

fn main() {}
