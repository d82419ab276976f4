//! Known bugs that cannot be written: gradients of whole values are reduced over every axis that their uses vary over,
//! without a declaration. The bugs: weights of norms in a sequence-parallel stream that diverge between ranks;
//! gradients of replicated parameters inside a tensor-parallel region; gradients whose layout was declared by hand.

use meshwright::layout::{AxisId, AxisSet};
use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

#[model]
struct Block {
    before: RmsNorm<Hidden>,
    own: Param<(Hidden,)>,
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "row", scatter = Seq)]
    down: Linear<Ffn, Hidden>,
    whole: RmsNorm<Hidden>,
}

#[forward]
impl Block {
    fn forward(&self, x: &Tensor<(Batch, Split<Seq, Tp>, Hidden)>) -> Tensor<(Batch, Seq, Hidden)> {
        let normed = self.before.forward(x) * &self.own;
        let y = x + self.down.forward(&self.up.forward(&normed).gelu());
        self.whole.forward(&y.gather(Seq))
    }
}

#[test]
fn follow_from_the_types() {
    let sizes = Sizes::new().with(Hidden, 4).with(Ffn, 6);
    super::on_mesh::<Block>("dp=2,tp=2", &sizes, |rank, built| {
        let x = Tensor::from_block(rank, &[2, 2, 4], &[1.0, -2.0, 3.0, -4.0]);
        let loss = Loss::mean_of(&built.model.forward(&x));
        let gradients = loss.backward().reduce();
        let tp = AxisSet::of(AxisId::Tp);
        for param in built.params() {
            let over_tp = param.gradient_axes().intersection(tp);
            let expected = match param.path() {
                "before.weight" | "own" => tp,
                _ => AxisSet::NONE,
            };
            assert_eq!(over_tp, expected, "{}", param.path());
            assert_eq!(
                param.gradient_axes().intersection(AxisSet::DATA),
                AxisSet::DATA,
                "{}",
                param.path()
            );
            assert!(gradients.local_block_of(param.path()).is_some());
        }
    });
}
