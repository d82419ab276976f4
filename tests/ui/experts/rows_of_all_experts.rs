//! ExpertTokens of all experts, given to the experts of one rank of `ep`.

use meshwright::prelude::*;

dims! { Batch @ data, Hidden, Experts, TopK }

type Stream = Tensor<(Batch, Hidden)>;

#[model]
struct Moe {
    router: Router<Hidden, Experts, TopK>,
    #[sharded(ep = "experts")]
    experts: GroupedLinear<Experts, Hidden, Hidden>,
}

#[forward]
impl Moe {
    fn forward(&self, x: &Stream) -> Stream {
        let routing = self.router.forward(x);
        routing.combine(&self.experts.forward(&routing.group(x)))
    }
}

fn main() {}
