//! Shapes of one to five dims.

use meshwright::prelude::*;

dims! { Batch @ data, Height, Width, Channel, Feature, Hidden, Ffn }

#[model]
struct Mlp {
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "row")]
    down: Linear<Ffn, Hidden>,
    norm: LayerNorm<Hidden>,
    bias: Bias<Hidden>,
}

/// Applies layers, which are generic in the leading dims, to each shape.
macro_rules! through {
    ($name:ident, $($dim:ident),*) => {
        impl Mlp {
            fn $name(&self, x: &Tensor<($($dim,)* Hidden,)>) -> Tensor<($($dim,)* Hidden,)> {
                let y = self.down.forward(&self.up.forward(x).gelu());
                self.norm.forward(&self.bias.forward(&(x + y)))
            }
        }
    };
}

through!(one,);
through!(two, Batch);
through!(three, Batch, Height);
through!(four, Batch, Height, Width);
through!(five, Batch, Height, Width, Channel);

/// Applies elementwise operations, sums and splits to each shape.
fn vector(x: &Tensor<(Hidden,)>) -> Tensor<(Hidden,)> {
    (x + x.slice(Hidden, Tp).silu().gather(Hidden)).scale(0.5)
}

fn volume(
    x: &Tensor<(Batch, Height, Width, Channel, Feature)>,
) -> Tensor<(Batch, Height, Width, Channel)> {
    x.slice(Width, Tp).tanh().gather(Width).sum(Feature)
}

#[test]
fn all_run() {
    let sizes = Sizes::new().with(Hidden, 4).with(Ffn, 6);
    super::on_mesh::<Mlp>("tp=2", &sizes, |rank, built| {
        let model = &built.model;
        let fill = |len: usize| vec![0.25; len];
        let x = Tensor::from_block(rank, &[4], &fill(4));
        assert_eq!(vector(&x).sizes(), [4]);
        assert_eq!(model.one(&x).sizes(), [4]);
        let x = Tensor::from_block(rank, &[2, 4], &fill(8));
        assert_eq!(model.two(&x).sizes(), [2, 4]);
        let x = Tensor::from_block(rank, &[2, 2, 4], &fill(16));
        assert_eq!(model.three(&x).sizes(), [2, 2, 4]);
        let x = Tensor::from_block(rank, &[1, 2, 2, 4], &fill(16));
        assert_eq!(model.four(&x).sizes(), [1, 2, 2, 4]);
        let x = Tensor::from_block(rank, &[1, 2, 2, 2, 4], &fill(32));
        assert_eq!(model.five(&x).sizes(), [1, 2, 2, 2, 4]);
        let x = Tensor::from_block(rank, &[1, 2, 2, 2, 3], &fill(24));
        assert_eq!(volume(&x).sizes(), [1, 2, 2, 2]);
    });
}
