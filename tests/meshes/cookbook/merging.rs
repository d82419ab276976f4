//! Keeping the tokens with the highest scores.

use meshwright::prelude::*;

use super::compare;

dims! { Batch @ data, Seq, Kept, Hidden }

type Stream = Tensor<(Batch, Seq, Hidden)>;

// ANCHOR: top_k
/// The three tokens with the highest scores of each sequence, weighted by them.
#[model]
struct KeepBest {
    score: Param<(Hidden,)>,
    layer: Linear<Hidden, Hidden>,
}

#[forward]
impl KeepBest {
    fn forward(&self, x: &Stream) -> Tensor<(Batch, Kept, Hidden)> {
        let (best, index) = (x * &self.score).sum(Hidden).top_k(Seq, 3, Kept);
        self.layer.forward(&x.take(&index, (Batch,))) * best.sigmoid()
    }
}
// ANCHOR_END: top_k

#[test]
fn best_tokens() {
    let mut sizes = Sizes::new().with(Hidden, 8);
    sizes.init_std = 0.5;
    compare(&sizes, |model: &KeepBest, rank| {
        let x = Tensor::normal(rank, &[4, 6, 8], "x");
        Loss::mean_of(&model.forward(&x).square())
    });
}
