//! A layer of another crate, made shardable by `Shard`.

use std::marker::PhantomData;

use meshwright::layout::{Axis, WholeFeature};
use meshwright::nn::{Col, Plain};
use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

/// `x * gain` over the last dim, in forms for a whole dim and for one that is split.
struct Gain<D: Dim, Style = Plain> {
    gain: Param<(D,)>,
    style: PhantomData<Style>,
}

impl<D: Dim, Style> Build for Gain<D, Style> {
    fn build(builder: &mut Builder<'_>) -> Self {
        Gain { gain: builder.param("gain", Init::Ones), style: PhantomData }
    }
}

impl<D: Whole + WholeFeature, A: Axis> Shard<Col<A>> for Gain<D>
where
    D::Split<A>: Dim,
{
    type Sharded = Gain<D::Split<A>, Col<A>>;
}

impl<B: Dim, S: Dim, D: Dim, Style> Layer<Tensor<(B, S, D)>> for Gain<D, Style> {
    type Out = Tensor<(B, S, D)>;

    fn forward(&self, x: &Tensor<(B, S, D)>) -> Self::Out {
        x * &self.gain
    }
}

#[model]
struct Mlp {
    whole: Gain<Hidden>,
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "col")]
    split: Gain<Ffn>,
    #[sharded(tp = "row")]
    down: Linear<Ffn, Hidden>,
}

#[forward]
impl Mlp {
    fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Seq, Hidden)> {
        self.down.forward(&self.split.forward(&self.up.forward(&self.whole.forward(x))))
    }
}

#[test]
fn is_split_like_the_layers_around_it() {
    let sizes = Sizes::new().with(Hidden, 4).with(Ffn, 6);
    super::on_mesh::<Mlp>("tp=2", &sizes, |rank, built| {
        let locals: Vec<(String, usize)> = built
            .params()
            .iter()
            .map(|param| (param.path().to_owned(), param.local_len()))
            .collect();
        let expected =
            [("whole.gain", 4), ("up.weight", 12), ("split.gain", 3), ("down.weight", 12)];
        assert_eq!(locals, expected.map(|(path, len)| (path.to_owned(), len)));
        let x = Tensor::from_block(rank, &[1, 1, 4], &[1.0, -2.0, 3.0, -4.0]);
        assert_eq!(built.model.forward(&x).sizes(), [1, 1, 4]);
    });
}
