//! Models with type, dim and const parameters.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

type Stream = Tensor<(Batch, Seq, Hidden)>;

/// Residual connection around any layer of the stream.
#[model]
struct Residual<L, const TWICE: bool> {
    norm: RmsNorm<Hidden>,
    inner: L,
}

#[forward]
impl<L: Layer<Stream, Out = Stream>, const TWICE: bool> Residual<L, TWICE> {
    fn forward(&self, x: &Stream) -> Stream {
        let y = x + self.inner.forward(&self.norm.forward(x));
        if TWICE { &y + self.inner.forward(&self.norm.forward(&y)) } else { y }
    }
}

/// An MLP generic in its inner dim.
#[model]
struct Mlp<F: Whole> {
    #[sharded(tp = "col")]
    up: Linear<Hidden, F>,
    #[sharded(tp = "row")]
    down: Linear<F, Hidden>,
}

#[forward]
impl<F: Whole> Mlp<F> {
    fn forward(&self, x: &Stream) -> Stream {
        self.down.forward(&self.up.forward(x).gelu())
    }
}

#[model]
struct Tower {
    blocks: Stack<Residual<Mlp<Ffn>, true>>,
}

#[forward]
impl Tower {
    fn forward(&self, x: &Stream) -> Stream {
        self.blocks.forward(x)
    }
}

#[test]
fn builds_and_runs() {
    let sizes = Sizes::new().with(Hidden, 4).with(Ffn, 6).with(Layers, 2);
    super::on_mesh::<Tower>("tp=2", &sizes, |rank, built| {
        let paths: Vec<String> =
            built.params().iter().map(|param| param.path().to_owned()).collect();
        assert!(paths.contains(&"blocks.1.inner.down.weight".to_owned()), "{paths:?}");
        let x = Tensor::from_block(rank, &[1, 2, 4], &[0.5; 8]);
        assert_eq!(built.model.forward(&x).sizes(), [1, 2, 4]);
    });
}
