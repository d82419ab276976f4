//! Programs over a sequence that the ranks of `cp` share: mistakes that types cannot detect are refused at their line,
//! and attention through traits, closures and fields is right on every mesh.

use meshwright::backend::cpu::CpuBackend;
use meshwright::comm::{CommError, launch};
use meshwright::layout::{AxisId, AxisSet};
use meshwright::mesh::MeshShape;
use meshwright::nn::ContextStyle;
use meshwright::prelude::*;

use super::harness::{
    MeshCase, Numbers, Spot, Steps, assert_parity_on, built, mesh, numbers, refused, stage3,
};

const FILE: &str = "tests/meshes/promise/context.rs";

dims! { Batch @ data, Seq @ cp, Hidden, Heads, HeadDim, Vocab, Positions }

type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;
type Ids = Tokens<(Batch, Seq)>;

/// Projections, and attentions of two styles.
#[model]
struct Net {
    #[sharded(tp = "vocab", scatter = Seq)]
    embed: Embedding<Vocab, Hidden>,
    positions: LearnedPositions<Positions, Hidden>,
    norm: RmsNorm<Hidden>,
    #[sharded(tp = "col")]
    q: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    k: Linear<Hidden, (Heads, HeadDim)>,
    rope: Rope<HeadDim>,
    #[sharded(cp = "ring")]
    ring: Attention<Heads, Heads, HeadDim>,
    #[sharded(cp = "ulysses")]
    ulysses: Attention<Heads, Heads, HeadDim, Bidirectional>,
    #[sharded(tp = "row", scatter = Seq)]
    o: Linear<(Heads, HeadDim), Hidden>,
    gain: Param<(Hidden,)>,
    #[sharded(tp = "vocab")]
    head: LmHead<Hidden, Vocab>,
}

const ROWS: usize = 4;
const SEQ: usize = 16;
const VOCAB: usize = 11;

fn sizes() -> Sizes {
    let mut sizes = Sizes::new()
        .with(Hidden, 8)
        .with(Heads, 4)
        .with(HeadDim, 2)
        .with(Vocab, VOCAB)
        .with(Positions, SEQ);
    sizes.init_std = 0.4;
    sizes
}

fn whole_rows(rank: &Rank, shift: usize) -> Vec<u32> {
    let (index, of) = (rank.position(AxisSet::DATA), rank.degree_of(AxisSet::DATA));
    let rows = index * ROWS / of..(index + 1) * ROWS / of;
    rows.flat_map(|row| (0..SEQ).map(move |at| ((row * 5 + at * at + shift) % VOCAB) as u32))
        .collect()
}

fn ids(rank: &Rank, shift: usize) -> Ids {
    Tokens::from_whole_rows(rank, &[ROWS, SEQ], 0, &whole_rows(rank, shift))
}

/// The start of the document of each token of whole rows: documents of `len` tokens.
fn starts(ids: &Ids, len: usize) -> Vec<u32> {
    let rows = ids.local_extents()[0].local;
    (0..rows).flat_map(|_| (0..SEQ).map(|at| (at / len * len) as u32)).collect()
}

fn cp(rank: &Rank) -> usize {
    rank.position(AxisSet::of(AxisId::Cp))
}

fn norm_of(net: &Net, ids: &Ids) -> f64 {
    Loss::mean_of(&attend(net, ids)).backward().reduce().norm()
}

fn attend(net: &Net, ids: &Ids) -> Stream {
    let x = net.positions.forward(&net.embed.forward(ids));
    let q = net.rope.forward(&net.q.forward(&x));
    let k = net.rope.forward(&net.k.forward(&x));
    net.o.forward(&net.ring.forward(&(q, k.clone(), k)))
}

/// Each rank of `cp` takes its positions of other rows.
#[test]
fn rows_of_each_rank_are_refused() {
    let differs =
        &["whole rows of token ids", "is declared the same on all ranks", "of different numbers"];
    for case in [mesh("cp=2"), mesh("dp=2,cp=2"), stage3("fsdp=2,cp=2")] {
        refused(case, FILE, differs, |rank, spot| {
            let net = built::<Net>(rank, &sizes()).model;
            let whole = whole_rows(rank, cp(rank));
            spot.next(line!());
            let ids = Tokens::from_whole_rows(rank, &[ROWS, SEQ], 0, &whole);
            norm_of(&net, &ids)
        });
    }
}

/// Documents belong to whole rows, and so are the same on ranks that share or repeat the rows.
#[test]
fn documents_of_each_rank_are_refused() {
    fn packed<T>(
        rank: &Rank,
        spot: &Spot,
        along: impl Fn(&Rank) -> usize,
        run: impl Fn(&Ids) -> T,
    ) -> T {
        let own = ids(rank, 0);
        let starts = starts(&own, 3 + along(rank));
        spot.next(line!());
        let ids = own.with_documents(&starts);
        run(&ids)
    }
    let differs =
        &["documents of token ids", "is declared the same on all ranks", "of different numbers"];
    for case in [mesh("cp=2"), stage3("fsdp=2,cp=2"), mesh("cp=2,tp=2")] {
        refused(case, FILE, differs, |rank, spot| {
            let net = built::<Net>(rank, &sizes()).model;
            packed(rank, spot, cp, |ids| norm_of(&net, ids))
        });
    }
    for case in [mesh("tp=2"), mesh("cp=2,tp=2")] {
        refused(case, FILE, differs, |rank, spot| {
            let net = built::<Net>(rank, &sizes()).model;
            let tp = |rank: &Rank| rank.position(AxisSet::of(AxisId::Tp));
            packed(rank, spot, tp, |ids| norm_of(&net, ids))
        });
    }
}

/// Queries and keys of two micro-batches, documents of another micro-batch, and keys of a shorter sequence.
#[test]
fn operands_of_other_rows_are_refused() {
    let halves = |rank: &Rank| {
        let whole = whole_rows(rank, 0);
        let half = whole.len() / 2;
        let rows = half / SEQ;
        [(0, &whole[..half]), (rows, &whole[half..])]
            .map(|(first, ids)| -> Ids { Tokens::from_whole_rows(rank, &[ROWS, SEQ], first, ids) })
    };
    for case in [mesh("1"), mesh("cp=2"), mesh("dp=2,cp=2"), mesh("cp=2,tp=2")] {
        refused(case, FILE, &["`ring`: the queries are rows"], |rank, spot| {
            let net = built::<Net>(rank, &sizes()).model;
            let [x, y] = halves(rank).map(|ids| net.embed.forward(&ids));
            let (q, k) = (net.q.forward(&x), net.k.forward(&y));
            spot.next(line!());
            let out = net.ring.forward(&(q, k.clone(), k));
            out.to_local_vec()
        });
        refused(case, FILE, &["`ulysses`: the queries have a batch of"], |rank, spot| {
            let net = built::<Net>(rank, &sizes()).model;
            let short: Vec<u32> =
                whole_rows(rank, 0).chunks(SEQ).flat_map(|row| row[..SEQ / 2].to_vec()).collect();
            let short: Ids = Tokens::from_whole_rows(rank, &[ROWS, SEQ / 2], 0, &short);
            let [x, y] = [ids(rank, 0), short].map(|ids| net.embed.forward(&ids));
            let (q, k) = (net.q.forward(&x), net.k.forward(&y));
            spot.next(line!());
            let out = net.ulysses.forward(&(q, k.clone(), k));
            out.to_local_vec()
        });
        refused(case, FILE, &["`ring`: the documents belong to"], |rank, spot| {
            let net = built::<Net>(rank, &sizes()).model;
            let [first, second] = halves(rank);
            let second = second.with_documents(&starts(&second, 5));
            let q = net.q.forward(&net.embed.forward(&first));
            spot.next(line!());
            let out = net.ring.forward(&(q.clone(), q.clone(), q, second.documents()));
            out.to_local_vec()
        });
    }
}

/// A sequence that was not cut into chunks of equal length.
#[test]
fn sequences_without_equal_chunks_are_refused() {
    for length in [10, 15] {
        let text = format!("a sequence of {length} positions is not divisible into 4 chunks");
        refused(mesh("cp=2"), FILE, &[&text, "use a multiple of 4"], |rank, spot| {
            let net = built::<Net>(rank, &sizes()).model;
            let ids: Ids = Tokens::from_whole_rows(rank, &[1, length], 0, &vec![1; length]);
            let q = net.q.forward(&net.embed.forward(&ids));
            spot.next(line!());
            let out = net.ring.forward(&(q.clone(), q.clone(), q));
            out.to_local_vec()
        });
    }
}

/// Ranks compare the tensors that they have made by their positions on the mesh, in any order of the axes.
#[test]
fn values_are_compared_in_every_order_of_axes() {
    type Rows = Tokens<(Batch, Seq)>;
    for (mesh, order) in
        [("dp=2,tp=2", "tp,dp"), ("dp=2,cp=2,tp=2", "cp,tp,dp"), ("fsdp=2,tp=3", "tp,fsdp")]
    {
        let shape: MeshShape = mesh.parse().unwrap();
        let shape = shape.with_order(order.parse().unwrap()).unwrap();
        let run = |axis: AxisId| {
            launch(&shape, |comms| {
                let backend = Box::new(CpuBackend::new(1).expect("threads start"));
                let rank = Rank::new(comms, backend, 7);
                let net = built::<Whole>(&rank, &sizes()).model;
                let id = rank.position(AxisSet::of(axis)) as u32;
                let len = ROWS / rank.degree_of(AxisSet::DATA) * SEQ / rank.degree(AxisId::Cp);
                let ids: Rows = Tokens::from_block(&rank, &[ROWS, SEQ], &vec![id; len]);
                let loss = Loss::mean_of(&net.embed.forward(&ids));
                Ok::<f64, CommError>(loss.backward().reduce().norm())
            })
            .map_err(|error| error.to_string())
        };
        let data = if mesh.starts_with("dp") { AxisId::Dp } else { AxisId::Fsdp };
        assert!(run(data).is_ok(), "{mesh} in the order {order}: {:?}", run(data));
        let text = run(AxisId::Tp).expect_err("ranks of tp have the same tokens");
        assert!(text.contains("is declared the same on all ranks"), "{mesh}, {order}: {text}");
    }
}

/// An embedding of whole tokens.
#[model]
struct Whole {
    embed: Embedding<Vocab, Hidden>,
}

/// Ranks that were given other styles issue other collectives: one error, and no hang.
#[test]
fn styles_of_each_rank_are_refused() {
    let found = super::harness::on(mesh("cp=2"), |rank| {
        let style = [ContextStyle::Ring, ContextStyle::Gather][cp(rank)];
        let mut sizes = sizes();
        sizes.context = Some(style);
        norm_of(&built::<Net>(rank, &sizes).model, &ids(rank, 0))
    });
    let text = found.expect_err("the ranks disagree");
    assert!(text.contains("ring"), "{text}");
}

/// A layer from queries and keys to heads, behind a trait object.
type Operand = Tensor<(Batch, Seq, Split<Heads, Tp>, HeadDim)>;
type Core = dyn Layer<(Operand, Operand, Operand), Out = Operand>;

struct Attend<'a> {
    core: &'a Core,
    net: &'a Net,
}

impl Attend<'_> {
    fn run(&self, x: &Stream) -> Stream {
        let (q, k) = (self.net.q.forward(x), self.net.k.forward(x));
        x + self.net.o.forward(&self.core.forward(&(self.net.rope.forward(&q), k.clone(), k)))
    }
}

const CASES: [MeshCase; 8] = [
    mesh("cp=2"),
    mesh("cp=4"),
    mesh("tp=2"),
    mesh("cp=2,tp=2"),
    mesh("dp=2,cp=2"),
    stage3("fsdp=2,cp=2"),
    stage3("cp=2"),
    stage3("cp=2,tp=2"),
];

fn check(name: &str, program: impl Fn(&Net, &Ids, &Ids, &mut Steps) + Sync) {
    assert_parity_on(name, &CASES, |rank| -> Numbers {
        let net = built::<Net>(rank, &sizes());
        let mut steps = Steps::default();
        program(&net.model, &ids(rank, 0), &ids(rank, 1), &mut steps);
        numbers(&net, steps)
    });
}

#[test]
fn distributed_sequences_equal_one_rank() {
    check("attentions behind a trait object", |net, tokens, targets, steps| {
        let cores: [&Core; 2] = [&net.ring, &net.ulysses];
        let x = net.positions.forward(&net.embed.forward(tokens));
        let y = cores.iter().fold(x, |x, core| Attend { core: *core, net }.run(&x));
        let loss = steps.note(net.head.loss(&net.norm.forward(&y), targets));
        steps.add(loss);
    });
    check("positions by global index", |net, tokens, targets, steps| {
        let x = net.embed.forward(tokens);
        let ramp: Stream =
            Tensor::from_fn(x.rank(), &x.sizes(), |at| (at[1] % 5) as f32 * 0.1 + at[2] as f32);
        let y = Attend { core: &net.ring, net }.run(&(&x * &ramp));
        let loss = steps.note(net.head.loss(&y, targets));
        steps.add(loss);
    });
    check(
        "documents in a closure, and a second use of one attention",
        |net, tokens, targets, steps| {
            let packed = tokens.with_documents(&starts(tokens, 5));
            let each = |ids: &Ids| attend(net, ids);
            let sum: Stream = [tokens, &packed].map(each).into_iter().reduce(|a, b| a + b).unwrap();
            let loss = steps.note(net.head.loss(&net.norm.forward(&sum), targets));
            steps.add(loss);
        },
    );
    check("a mean over the sequence after attention", |net, tokens, targets, steps| {
        let x = net.embed.forward(tokens);
        let y = Attend { core: &net.ulysses, net }.run(&x);
        let pooled = y.gather(Seq).mean(Seq).all_reduce();
        let penalty = steps.note(Loss::mean_of(&(&pooled * &pooled * &net.gain)));
        let loss = steps.note(net.head.loss(&y, targets));
        steps.add(loss.and(penalty));
    });
    check("queries of one micro-batch step as keys of the next", |net, tokens, targets, steps| {
        let (x, y) = (net.embed.forward(tokens), net.embed.forward(targets));
        let (q, k, v) = (net.q.forward(&x), net.k.forward(&y), net.k.forward(&x));
        let out = net.o.forward(&net.ulysses.forward(&(q, k, v)));
        let loss = steps.note(Loss::mean_of(&(net.norm.forward(&out) * &net.gain)));
        steps.add(loss);
    });
}
