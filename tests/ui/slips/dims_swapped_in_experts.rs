//! Swapped dims of a layer of experts.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn, Experts, TopK }

type Stream = Tensor<(Batch, Seq, Hidden)>;

#[model]
struct Moe {
    router: Router<Hidden, Experts, TopK>,
    #[sharded(ep = "experts")]
    up: GroupedLinear<Experts, Ffn, Hidden>,
    #[sharded(ep = "experts")]
    down: GroupedLinear<Experts, Ffn, Hidden>,
}

#[forward]
impl Moe {
    fn forward(&self, x: &Stream) -> Stream {
        let routing = self.router.forward(x);
        let rows = routing.dispatch(x, Ep);
        routing.combine(&self.down.forward(&self.up.forward(&rows).silu()))
    }
}

fn main() {}
