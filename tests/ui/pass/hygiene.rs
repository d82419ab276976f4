//! Expansions need no names in scope, and do not collide with names in scope.
#![no_implicit_prelude]

use ::meshwright as renamed;

/// Names that an expansion might resolve to by mistake.
#[allow(dead_code, reason = "traps are not meant to be used")]
mod traps {
    pub struct Build;
    pub struct Layer;
    pub struct Module;
    pub struct Option;
    pub struct Some;
    pub struct Recompute;
    pub struct RecomputeEvery;
    pub struct RecomputePolicy;
    pub struct Grouping;
    pub struct Result;
    pub struct Tp;
    pub fn scope() {}
    pub fn returned() {}
}
#[allow(unused_imports, reason = "traps are not meant to be used")]
use traps::*;

// Authors call `forward` by this trait, which the prelude has too.
use ::meshwright::prelude::Layer as _;

::meshwright::dims! { Batch @ data, Seq, Hidden, Ffn, Vocab }

type Stream = ::meshwright::prelude::Tensor<(Batch, Seq, Hidden)>;

#[::meshwright::model]
#[sharded(fsdp)]
struct Mlp {
    #[sharded(tp = "col", fsdp)]
    up: ::meshwright::prelude::Linear<Hidden, Ffn>,
    #[sharded(tp = "row")]
    down: ::meshwright::prelude::Linear<Ffn, Hidden>,
}

#[::meshwright::forward]
impl Mlp {
    fn forward(&self, x: &Stream) -> Stream {
        let input = self.up.forward(x).gelu();
        self.down.forward(&input)
    }
}

#[renamed::model(crate = renamed)]
struct Model {
    #[sharded(tp = "vocab")]
    embed: renamed::prelude::Embedding<Vocab, Hidden>,
    #[recompute(save = [up], offload)]
    mlp: Mlp,
    #[recompute(every = 2, save = [down])]
    mlps: renamed::prelude::Stack<Mlp>,
    #[sharded(tp = "vocab")]
    #[tied(embed)]
    head: renamed::prelude::LmHead<Hidden, Vocab>,
}

#[renamed::forward(crate = renamed)]
impl Model {
    fn forward(
        &self,
        (tokens, builder): &(renamed::prelude::Tokens<(Batch, Seq)>, Stream),
    ) -> Stream {
        use ::std::ops::Add;
        self.mlps.forward(&self.mlp.forward(&self.embed.forward(tokens).add(builder)))
    }
}

#[test]
fn builds_with_one_weight_for_both_ends() {
    use ::std::assert_eq;
    let sizes = renamed::prelude::Sizes::new()
        .with(Hidden, 4)
        .with(Ffn, 6)
        .with(Vocab, 8)
        .with(renamed::prelude::Layers, 1);
    super::on_mesh::<Model>("tp=2", &sizes, |_, built| {
        assert_eq!(built.params().len(), 5);
    });
}
