//! A hand-written contraction, whose partial sum is reduced in all possible ways.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

#[model]
struct Experts {
    #[sharded(tp = "col")]
    up: Param<(Hidden, Ffn)>,
    #[sharded(tp = "row")]
    down: Param<(Ffn, Hidden)>,
    bias: Param<(Hidden,)>,
}

#[forward]
impl Experts {
    fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Seq, Hidden)> {
        let h = x.contract(&self.up).silu();
        let twice = h.contract(&self.down) * 0.5 + h.contract(&self.down) * 0.5;
        x + twice.all_reduce() + &self.bias
    }
}

impl Experts {
    fn in_background(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Seq, Hidden)> {
        let under_way = x.contract(&self.up).silu().contract(&self.down).start_all_reduce();
        let meanwhile = x + &self.bias;
        meanwhile + under_way.wait()
    }

    fn scattered(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Seq, Hidden)> {
        let sum = x.contract(&self.up).silu().contract(&self.down).reduce_scatter(Seq);
        (x.slice(Seq, Tp) + sum + &self.bias).gather(Seq)
    }
}

#[test]
fn every_way_of_reducing_gives_the_same() {
    let sizes = Sizes::new().with(Hidden, 4).with(Ffn, 6);
    super::on_mesh::<Experts>("tp=2", &sizes, |rank, built| {
        let block: Vec<f32> = (0..8).map(|i| i as f32 - 3.5).collect();
        let x = Tensor::from_block(rank, &[1, 2, 4], &block);
        let model = &built.model;
        let expected = model.forward(&x).to_local_vec();
        for other in [model.in_background(&x).to_local_vec(), model.scattered(&x).to_local_vec()] {
            assert!(
                other.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-6),
                "{other:?} {expected:?}"
            );
        }
    });
}
