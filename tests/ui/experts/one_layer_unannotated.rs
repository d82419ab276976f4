//! Experts with a layer that is not split like the others.

use meshwright::prelude::*;

dims! { Batch @ data, Hidden, Ffn, Experts, TopK }

type ExpertTokens = Tensor<(Routed<(Batch,), Split<Experts, Ep>>, Hidden)>;

#[model]
struct Networks {
    #[sharded(ep = "experts")]
    up: GroupedLinear<Experts, Hidden, Ffn>,
    down: GroupedLinear<Experts, Ffn, Hidden>,
}

#[forward]
impl Networks {
    fn forward(&self, x: &ExpertTokens) -> ExpertTokens {
        self.down.forward(&self.up.forward(x).gelu())
    }
}

fn main() {}
