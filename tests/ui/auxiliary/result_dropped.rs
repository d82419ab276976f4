//! An auxiliary loss on a tensor that nothing reads.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Experts, TopK }

type Stream = Tensor<(Batch, Seq, Hidden)>;

#[model]
struct Mixture {
    router: Router<Hidden, Experts, TopK>,
    experts: GroupedLinear<Experts, Hidden, Hidden>,
}

#[forward]
impl Mixture {
    fn forward(&self, x: &Stream) -> Stream {
        let routing = self.router.forward(x);
        let mixed = routing.combine(&self.experts.forward(&routing.group(x)));
        mixed.clone().with_auxiliary_loss(&routing.load_balancing_loss());
        mixed
    }
}

fn main() {}
