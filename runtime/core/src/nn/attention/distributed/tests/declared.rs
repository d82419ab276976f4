//! A style that is chosen for a run gives the bits, and sends the bytes, of a model that declares this style.

use std::collections::BTreeMap;

use super::{BATCH, Batch, HeadDim, Heads, Hidden, KvHeads, Results, SEQ, Seq, Stream, Vocab};
use super::{sizes, start, with_style};
use crate::layout::AxisSet;
use crate::nn::{
    Attention, Build, ContextStyle, Embedding, Layer, Linear, LmHead, RmsNorm, Sizes, build,
};
use crate::tensor::{Loss, Rank, Targets, Tokens};
use meshwright_comm::{CommError, launch};
use meshwright_cpu::CpuBackend;
use meshwright_macros::model;
use meshwright_mesh::MeshShape;

/// A language model of one layer.
trait OneLayer: Build {
    fn loss(
        &self,
        tokens: &Tokens<(Batch, Seq)>,
        targets: &Targets<(Batch, Seq)>,
    ) -> Loss<(Batch, Seq)>;
}

/// Declares a model whose attention has this style.
macro_rules! one_layer {
    ($name:ident, $style:literal) => {
        #[model(crate = crate)]
        struct $name {
            #[sharded(tp = "vocab", scatter = Seq)]
            embed: Embedding<Vocab, Hidden>,
            #[sharded(tp = "col")]
            q: Linear<Hidden, (Heads, HeadDim)>,
            #[sharded(tp = "col")]
            k: Linear<Hidden, (KvHeads, HeadDim)>,
            #[sharded(tp = "col")]
            v: Linear<Hidden, (KvHeads, HeadDim)>,
            #[sharded(cp = $style)]
            core: Attention<Heads, KvHeads, HeadDim>,
            #[sharded(tp = "row", scatter = Seq)]
            o: Linear<(Heads, HeadDim), Hidden>,
            norm: RmsNorm<Hidden>,
            #[sharded(tp = "vocab")]
            head: LmHead<Hidden, Vocab>,
        }

        impl OneLayer for $name {
            fn loss(
                &self,
                tokens: &Tokens<(Batch, Seq)>,
                targets: &Targets<(Batch, Seq)>,
            ) -> Loss<(Batch, Seq)> {
                let x: Stream = self.embed.forward(tokens);
                let (q, k, v) = (self.q.forward(&x), self.k.forward(&x), self.v.forward(&x));
                let y = self.o.forward(&self.core.forward(&(q, k, v)));
                self.head.loss(&self.norm.forward(&(x + y)), targets)
            }
        }
    };
}

one_layer!(ByRing, "ring");
one_layer!(ByGather, "gather");
one_layer!(ByUlysses, "ulysses");
one_layer!(ByHybrid, "hybrid");

/// The loss and the gradients, and the bytes that rank 0 has sent along each set of axes.
fn on<M: OneLayer>(mesh: &str, sizes: &Sizes) -> (Results, BTreeMap<AxisSet, u64>) {
    let shape: MeshShape = mesh.parse().unwrap();
    let mut results = launch(&shape, |comms| {
        let rank = Rank::new(comms, Box::new(CpuBackend::new(1).unwrap()), 7);
        let built = build::<M>(&rank, sizes).unwrap();
        let cells = || (0..BATCH).flat_map(|row| (0..SEQ).map(move |at| (row, at)));
        let rows = |values: Vec<u32>| {
            Tokens::<(Batch, Seq)>::from_whole_rows(&rank, &[BATCH, SEQ], 0, &values)
        };
        let starts: Vec<u32> = cells().map(|(row, at)| start(row, at)).collect();
        let tokens = rows(cells().map(|(row, at)| (row * 7 + at * at + 3) as u32 % 11).collect());
        let targets = rows(cells().map(|(row, at)| (row + at * 5) as u32 % 11).collect());
        let loss = built.model.loss(&tokens.with_documents(&starts), &targets);
        let value = loss.reduce().value();
        let gradients = loss.backward().reduce();
        let of =
            |param: &crate::tensor::ParamRef| (param.path().to_owned(), gradients.gather(param));
        let all = built.params().iter().map(of).collect();
        let sent = rank.comms().bytes_by_axes();
        Ok::<_, CommError>(((value, all), sent))
    })
    .unwrap_or_else(|error| panic!("{mesh}: {error}"));
    results.swap_remove(0)
}

#[test]
fn a_chosen_style_is_the_declared_one() {
    for mesh in ["cp=2", "cp=4", "cp=2,tp=2"] {
        let declared = [
            (ContextStyle::Ring, on::<ByRing>(mesh, &sizes())),
            (ContextStyle::Gather, on::<ByGather>(mesh, &sizes())),
            (ContextStyle::Ulysses, on::<ByUlysses>(mesh, &sizes())),
            (ContextStyle::Hybrid(None), on::<ByHybrid>(mesh, &sizes())),
        ];
        for (style, expected) in declared {
            let sizes = with_style(style, sizes());
            for actual in [
                on::<ByRing>(mesh, &sizes),
                on::<ByGather>(mesh, &sizes),
                on::<ByUlysses>(mesh, &sizes),
                on::<ByHybrid>(mesh, &sizes),
            ] {
                assert_eq!(actual, expected, "{style} on {mesh}");
            }
        }
    }
}
