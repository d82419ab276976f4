//! Tokens where experts take rows, and rows where tokens are expected.

use meshwright::prelude::*;

dims! { Batch @ data, Hidden, Experts, TopK }

type Stream = Tensor<(Batch, Hidden)>;
type Rows = Tensor<(Routed<(Batch,), Split<Experts, Ep>>, Hidden)>;

#[model]
struct Networks {
    #[sharded(ep = "experts")]
    up: GroupedLinear<Experts, Hidden, Hidden>,
}

#[forward]
impl Networks {
    fn forward(&self, x: &Rows) -> Rows {
        self.up.forward(x)
    }
}

#[model]
struct Moe {
    router: Router<Hidden, Experts, TopK>,
    networks: Networks,
}

#[forward]
impl Moe {
    fn forward(&self, x: &Stream) -> Stream {
        let rows = self.networks.forward(x);
        self.router.forward(x).combine(&rows)
    }
}

#[model]
struct NotCombined {
    router: Router<Hidden, Experts, TopK>,
    networks: Networks,
}

#[forward]
impl NotCombined {
    fn forward(&self, x: &Stream) -> Stream {
        self.networks.forward(&self.router.forward(x).dispatch(x, Ep))
    }
}

fn never_dispatched(routing: &TokenRouting<(Batch,), Experts, TopK>, x: &Stream) -> Stream {
    routing.combine(x)
}

fn main() {}
