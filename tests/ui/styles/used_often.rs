//! Styles of layers that do not have them are one error each, however often the layers are used.

use meshwright::prelude::*;

dims! { Batch @ data, Hidden, Ffn, Vocab, Experts, TopK }

type Stream = Tensor<(Batch, Hidden)>;

#[model]
struct Net {
    #[sharded(tp = "col")]
    norm: RmsNorm<Hidden>,
    #[sharded(tp = "vocab")]
    mix: Linear<Hidden, Hidden>,
    #[sharded(tp = "row")]
    norms: Vec<LayerNorm<Hidden>>,
    #[sharded(tp = "col", ep = "experts")]
    experts: GroupedLinear<Experts, Hidden, Hidden>,
    #[sharded(ep = "experts")]
    router: Router<Hidden, Experts, TopK>,
}

#[forward]
impl Net {
    fn forward(&self, x: &Stream) -> Stream {
        let x = self.norm.forward(x) + self.norm.forward(&self.norm.forward(x));
        let x = self.mix.forward(&self.norms[0].forward(&x)) + self.mix.forward(&x);
        let routing = self.router.forward(&x);
        routing.combine(&self.experts.forward(&self.experts.forward(&routing.group(&x))))
    }
}

fn main() {}
