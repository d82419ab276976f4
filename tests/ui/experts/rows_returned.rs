//! ExpertTokens that are returned without being brought back to their tokens.

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
        x + self.experts.forward(&routing.dispatch(x, Ep))
    }
}

fn main() {}
