//! Experts folded over an axis whose ranks have the same tokens.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Experts, TopK }

type Stream = Tensor<(Batch, Seq, Hidden)>;

#[model]
struct Moe {
    router: Router<Hidden, Experts, TopK>,
    #[sharded(ep = "experts", fold = [tp])]
    experts: GroupedLinear<Experts, Hidden, Hidden>,
}

#[forward]
impl Moe {
    fn forward(&self, x: &Stream) -> Stream {
        let routing = self.router.forward(x);
        routing.combine(&self.experts.forward(&routing.dispatch(x, (Ep, Tp))))
    }
}

fn main() {}
