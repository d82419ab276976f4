//! ExpertTokens that are dispatched over other axes than the experts' axes.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Experts, TopK }

type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

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
        routing.combine(&self.experts.forward(&routing.dispatch(x, Ep)))
    }
}

fn main() {}
