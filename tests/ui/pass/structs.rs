//! The struct and the `forward` of a model are as they are written: no field more, and no method twice.

use meshwright::prelude::*;

dims! { Batch @ data, Hidden, Ffn }

type Stream = Tensor<(Batch, Hidden)>;

/// The last field is annotated.
#[model]
struct Mlp {
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "row")]
    down: Linear<Ffn, Hidden>,
}

#[forward]
impl Mlp {
    fn forward(&self, x: &Stream) -> Stream {
        let Mlp { up, down } = self;
        down.forward(&up.forward(x).silu())
    }
}

/// Layers whose `forward` is private to their module.
mod layers {
    use super::*;

    #[model]
    #[derive(Default)]
    pub struct Doubled {}

    #[forward]
    impl Doubled {
        fn forward(&self, x: &Stream) -> Stream {
            x + x
        }
    }
}

#[model]
struct Net {
    doubled: layers::Doubled,
    #[recompute]
    mlp: Mlp,
}

#[forward]
impl Net {
    fn forward(&self, x: &Stream) -> Stream {
        self.mlp.forward(&self.doubled.forward(x))
    }
}

/// A bound on the types of `forward` alone is enough to call it.
fn apply<M: Module<In = Stream, Out = Stream>>(model: &M, x: &Stream) -> Stream {
    model.forward(x)
}

#[test]
fn a_struct_is_taken_apart_and_built_again() {
    let sizes = Sizes::new().with(Hidden, 2).with(Ffn, 4);
    super::on_mesh::<Net>("tp=2", &sizes, |rank, built| {
        let x = Tensor::from_fn(rank, &[2, 2], |at| (at[0] + at[1]) as f32);
        let expected = apply(&built.model, &x).to_local_vec();
        let Net { doubled, mlp } = built.model;
        let again = Net { doubled, mlp };
        assert_eq!(apply(&again, &x).to_local_vec(), expected);
        assert_eq!(layers::Doubled::default().forward(&x).to_local_vec(), (&x + &x).to_local_vec());
    });
}
