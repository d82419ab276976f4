//! Models with pipeline stages: outputs and gradients equal written `forward`s, and every partition into parts.

use meshwright::layout::Dims;
use meshwright::nn::{ChainPart, PartInput, PartOutput, describe_chain, forward_part};
use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn, Vocab, Encoders }

type Ids = Tokens<(Batch, Seq)>;
type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

#[model]
#[pipeline_stage]
struct Block {
    norm: RmsNorm<Hidden>,
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "row", scatter = Seq)]
    down: Linear<Ffn, Hidden>,
    dropout: Dropout,
}

#[forward]
impl Block {
    fn forward(&self, x: &Stream) -> Stream {
        x + self.dropout.forward(&self.down.forward(&self.up.forward(&self.norm.forward(x)).silu()))
    }
}

/// The same model twice: with stages, and with a written `forward`.
macro_rules! decoder {
    ($name:ident, [$($stage:meta)?], [$($last:meta)?]) => {
        #[model]
        struct $name {
            $(#[$stage])?
            #[sharded(tp = "vocab", scatter = Seq)]
            embed: Embedding<Vocab, Hidden>,
            $(#[$stage])?
            dropout: Dropout,
            #[cfg(any())]
            $(#[$stage])?
            left_out: Nothing,
            $(#[$stage])?
            #[recompute]
            first: Block,
            $(#[$stage])?
            #[recompute(every = 2, save = [up])]
            blocks: Stack<Block>,
            $(#[$stage])?
            bias: Bias<Hidden>,
            $(#[$stage])?
            norm: RmsNorm<Hidden>,
            $(#[$last])?
            #[sharded(tp = "vocab")]
            #[tied(embed)]
            head: LmHead<Hidden, Vocab>,
        }

        impl LossOfOutput for $name {
            fn loss_of_output(&self, x: &Stream, tokens: &Ids) -> Loss<(Batch, Seq)> {
                self.head.loss(x, tokens)
            }
        }
    };
}

trait LossOfOutput: Build + Module<In = Ids, Out = Stream> {
    fn loss_of_output(&self, x: &Stream, tokens: &Ids) -> Loss<(Batch, Seq)>;
}

decoder!(Staged, [pipeline_stage], [pipeline_stage(last)]);
decoder!(Written, [], []);

#[forward]
impl Staged {
    fn forward(&self, tokens: &Ids) -> Stream;
}

#[forward]
impl Written {
    fn forward(&self, tokens: &Ids) -> Stream {
        let x = self.first.forward(&self.dropout.forward(&self.embed.forward(tokens)));
        self.norm.forward(&self.bias.forward(&self.blocks.forward(&x)))
    }
}

/// Encoder and decoder, whose streams cross all boundaries together.
#[model]
struct Front {
    #[sharded(tp = "vocab", scatter = Seq)]
    embed: Embedding<Vocab, Hidden>,
}

#[forward]
impl Front {
    fn forward(&self, (source, target): &(Ids, Ids)) -> (Stream, Stream, Ids) {
        (self.embed.forward(source), self.embed.forward(target), target.clone())
    }
}

#[model]
struct Encoder {
    block: Block,
}

#[forward]
impl Encoder {
    fn forward(&self, (source, target, ids): &(Stream, Stream, Ids)) -> (Stream, Stream, Ids) {
        (self.block.forward(source), target.clone(), ids.clone())
    }
}

/// Adds the encoder's output, which is a skip connection to every decoder layer.
#[model]
struct Decoder {
    block: Block,
    #[sharded(tp = "vocab", scatter = Seq)]
    again: Embedding<Vocab, Hidden>,
}

#[forward]
impl Decoder {
    fn forward(&self, (source, target, ids): &(Stream, Stream, Ids)) -> (Stream, Stream, Ids) {
        let target = self.block.forward(target) * source + self.again.forward(ids);
        (source.clone(), target, ids.clone())
    }
}

#[model]
struct Back {
    norm: RmsNorm<Hidden>,
}

#[forward]
impl Back {
    fn forward(&self, (_, target, _): &(Stream, Stream, Ids)) -> Stream {
        self.norm.forward(target)
    }
}

#[model]
struct Translator {
    #[pipeline_stage]
    front: Front,
    #[pipeline_stage]
    #[recompute(every = 2)]
    encoder: Stack<Encoder, Encoders>,
    #[pipeline_stage(cost = 1.5)]
    decoder: Stack<Decoder>,
    #[pipeline_stage]
    back: Back,
}

#[forward]
impl Translator {
    fn forward(&self, (source, target): &(Ids, Ids)) -> Stream;
}

fn sizes() -> Sizes {
    let mut sizes =
        Sizes::new().with(Hidden, 4).with(Ffn, 6).with(Vocab, 8).with(Layers, 3).with(Encoders, 2);
    sizes.init_std = 0.5;
    sizes.dropout = 0.25;
    sizes
}

/// The gradient of each parameter, on each rank.
type Numbers = Vec<Vec<(String, Vec<f32>)>>;

/// Returns the gradients of a loss on a mesh.
fn gradients<M: Build, S: Dims>(mesh: &str, loss: impl Fn(&Rank, &M) -> Loss<S> + Sync) -> Numbers {
    let found = std::sync::Mutex::new(Vec::new());
    super::on_mesh::<M>(mesh, &sizes(), |rank, built| {
        let gradients = loss(rank, &built.model).backward().reduce();
        let params = built.params();
        let all = params.iter().map(|param| (param.path().to_owned(), gradients.gather(param)));
        // Collected before the lock is held, as each gather waits for the other ranks.
        let all = all.collect();
        found.lock().expect("no rank has panicked").push(all);
    });
    found.into_inner().expect("no rank has panicked")
}

fn ids(rank: &Rank) -> Ids {
    Tokens::from_block(rank, &[1, 4], &[1, 5, 2, 7])
}

/// Runs the parts of a chain one after the other.
fn forward_in_parts<M: Module<In: Clone>>(model: &M, parts: &[ChainPart], input: &M::In) -> M::Out {
    let mut input = PartInput::Model(input);
    for part in parts {
        match forward_part(model, part, input) {
            PartOutput::Boundary(data) => input = PartInput::Boundary(data),
            PartOutput::Model(output) => return output,
        }
    }
    panic!("the last part gives the output of the model");
}

/// Returns every partition of `0..n` into up to three parts.
fn partitions(n: usize) -> Vec<Vec<std::ops::Range<usize>>> {
    let mut found = vec![vec![0..n]];
    for first in 1..n {
        found.push(vec![0..first, first..n]);
        found.extend((first + 1..n).map(|second| vec![0..first, first..second, second..n]));
    }
    found
}

#[test]
fn stages_compute_what_forward_computes() {
    for mesh in ["tp=1", "tp=2"] {
        let staged = gradients::<Staged, _>(mesh, loss_of_whole);
        assert_eq!(staged, gradients::<Written, _>(mesh, loss_of_whole), "{mesh}");
        let is_used = |(_, gradient): &&(String, Vec<f32>)| gradient.iter().any(|g| *g != 0.0);
        assert_eq!(staged[0].iter().filter(is_used).count(), staged[0].len(), "{mesh}");
    }
}

fn loss_of_whole<M: LossOfOutput>(rank: &Rank, model: &M) -> Loss<(Batch, Seq)> {
    let tokens = ids(rank);
    model.loss_of_output(&model.forward(&tokens), &tokens)
}

#[test]
fn parts_compute_what_the_model_computes() {
    let whole = gradients::<Staged, _>("tp=2", loss_of_whole);
    for ranges in partitions(8) {
        let in_parts = gradients::<Staged, _>("tp=2", |rank, model| {
            let chain = describe_chain(model).expect("the model has stages");
            let parts: Vec<_> = ranges.iter().map(|range| chain.part(range.clone())).collect();
            let tokens = ids(rank);
            model.loss_of_output(&forward_in_parts(model, &parts, &tokens), &tokens)
        });
        assert_eq!(in_parts, whole, "{ranges:?}");
    }
}

#[test]
fn parts_of_tuples_compute_what_the_model_computes() {
    let loss = |x: &Stream| Loss::mean_of(&(x * x));
    let input = |rank: &Rank| (ids(rank), Tokens::from_block(rank, &[1, 4], &[3, 0, 6, 4]));
    let whole =
        gradients::<Translator, _>("tp=2", |rank, model| loss(&model.forward(&input(rank))));
    for ranges in partitions(7) {
        let in_parts = gradients::<Translator, _>("tp=2", |rank, model| {
            let chain = describe_chain(model).expect("the model has stages");
            let parts: Vec<_> = ranges.iter().map(|range| chain.part(range.clone())).collect();
            loss(&forward_in_parts(model, &parts, &input(rank)))
        });
        assert_eq!(in_parts, whole, "{ranges:?}");
    }
}

#[test]
fn chains_are_described() {
    super::on_mesh::<Translator>("tp=1", &sizes(), |_, built| {
        let chain = describe_chain(&built.model).expect("the model has stages");
        let fields: Vec<_> = chain.fields.iter().map(|f| (f.name, f.n_elements())).collect();
        assert_eq!(fields, [("front", 1), ("encoder", 2), ("decoder", 3), ("back", 1)]);
        let dims: Vec<_> = chain.fields.iter().map(|f| f.layers.map(|l| l.dim)).collect();
        assert_eq!(dims, [None, Some("Encoders"), Some("Layers"), None]);
        let kinds: Vec<_> = chain.fields[1].output.iter().map(|kind| format!("{kind:?}")).collect();
        let starts = ["Activation(", "Activation(", "TokenIds("];
        assert!(kinds.iter().zip(starts).all(|(kind, start)| kind.starts_with(start)), "{kinds:?}");
        assert_eq!((kinds.len(), chain.fields[3].output.len()), (3, 1));
        assert_eq!(chain.fields[3].output[0].dims().len(), 3);
    });
    super::on_mesh::<Written>("tp=1", &sizes(), |_, built| {
        assert!(describe_chain(&built.model).is_none());
    });
    let stage = Translator::describe().fields[2].stage.expect("a stage");
    assert_eq!((stage.last, stage.cost), (false, Some(1.5)));
    let head = Staged::describe().fields.last().expect("a head");
    assert!(head.stage.expect("a stage").last);
    assert!(Written::describe().fields.iter().all(|field| field.stage.is_none()));
}
