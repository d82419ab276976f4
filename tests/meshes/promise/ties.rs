//! Ties of every kind of field that has a single weight.

use meshwright::nn::Build;
use meshwright::prelude::*;
use meshwright::tensor::Rank;

use super::harness::{Numbers, ONE, assert_mesh_parity, built, gradients_of, on};
use super::net::*;

/// A model that reads one weight twice: in a lookup, and in a head.
trait Twice: Build {
    fn rows(&self, tokens: &Ids) -> Stream;
    fn logits(&self, x: &Stream) -> Tensor<(Batch, Seq, Vocab)>;
}

#[model]
pub struct Layers {
    embed: Embedding<Vocab, Hidden>,
    #[tied(embed)]
    head: LmHead<Hidden, Vocab>,
}

/// A table as a field of its own before the layers that are tied to it.
#[model]
pub struct TableFirst {
    table: Param<(Vocab, Hidden)>,
    #[tied(table)]
    embed: Embedding<Vocab, Hidden>,
    #[tied(table)]
    head: LmHead<Hidden, Vocab>,
}

/// A table as a field of its own after the layers.
#[model]
pub struct TableLast {
    embed: Embedding<Vocab, Hidden>,
    #[tied(embed)]
    table: Param<(Vocab, Hidden)>,
    #[tied(embed)]
    head: LmHead<Hidden, Vocab>,
}

macro_rules! reads_twice {
    ($($model:ident)*) => {$(
        impl Twice for $model {
            fn rows(&self, tokens: &Ids) -> Stream {
                self.embed.forward(tokens)
            }

            fn logits(&self, x: &Stream) -> Tensor<(Batch, Seq, Vocab)> {
                self.head.logits(x)
            }
        }
    )*};
}

reads_twice! { Layers TableFirst TableLast }

fn run<M: Twice>(weight: &str) -> impl Fn(&Rank) -> Numbers + Sync {
    move |rank: &Rank| {
        let net = built::<M>(rank, &sizes());
        let find = |path: &str| net.params().into_iter().find(|param| param.path() == path);
        let values = |count: usize| (0..count).map(|i| (i as f32 * 0.7).sin()).collect::<Vec<_>>();
        let param = find(weight).unwrap();
        param.write_global(&values(param.global_len()));
        assert_eq!(net.params().len(), 1, "the two layers have one weight");
        let x = net.model.rows(&micro_batch(rank, (8, 6), (0, 1), true).tokens);
        let logits = net.model.logits(&x.tanh());
        let gradients = Loss::mean_of(&(&logits * &logits)).backward().reduce();
        let mut numbers = gradients_of(&net, &gradients);
        let gradient = numbers.remove(&format!("gradient of {weight}")).unwrap();
        numbers.insert("gradient of the weight".into(), gradient);
        numbers
    }
}

#[test]
fn a_parameter_is_tied_to_layers_in_either_order() {
    let expected = on(ONE, run::<Layers>("embed.weight")).unwrap();
    assert_mesh_parity("table first", run::<TableFirst>("table"));
    assert_mesh_parity("table last", run::<TableLast>("embed.weight"));
    assert_eq!(on(ONE, run::<TableFirst>("table")).unwrap(), expected);
    assert_eq!(on(ONE, run::<TableLast>("embed.weight")).unwrap(), expected);
}
