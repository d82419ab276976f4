//! Documents that attention finds: those of the rows that its keys are computed from, in whatever way the program is
//! written. Where they contradict each other, the line of the attention is refused.

use std::cell::RefCell;

use meshwright::prelude::*;

use super::harness::{Numbers, assert_parity_on, built, gradients_of, mesh, refused};

const FILE: &str = "tests/meshes/promise/documents.rs";

dims! { Batch @ data, Seq, Memory, Hidden, Heads, HeadDim, Vocab }

type Stream = Tensor<(Batch, Seq, Hidden)>;
type OnMemory = Tensor<(Batch, Memory, Hidden)>;
type Ids = Tokens<(Batch, Seq)>;

/// Self-attention and cross attention.
#[model]
struct Net {
    embed: Embedding<Vocab, Hidden>,
    #[sharded(tp = "col")]
    q: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    k: Linear<Hidden, (Heads, HeadDim)>,
    core: Attention<Heads, Heads, HeadDim>,
    cross: Attention<Heads, Heads, HeadDim, Bidirectional>,
    #[sharded(tp = "row")]
    o: Linear<(Heads, HeadDim), Hidden>,
    whole: WholeHeads,
}

/// Attention without a tensor-parallel region.
#[model]
struct WholeHeads {
    q: Linear<Hidden, (Heads, HeadDim)>,
    core: Attention<Heads, Heads, HeadDim>,
}

impl Net {
    /// Attends from `x` to `y` along one sequence.
    #[track_caller]
    fn attend(&self, x: &Stream, y: &Stream) -> Stream {
        let k = self.k.forward(y);
        self.o.forward(&self.core.forward(&(self.q.forward(x), k.clone(), k)))
    }
}

const ROWS: usize = 4;
const SEQ: usize = 12;

fn sizes() -> Sizes {
    let mut sizes = Sizes::new().with(Hidden, 8).with(Heads, 4).with(HeadDim, 2).with(Vocab, 11);
    sizes.init_std = 0.4;
    sizes
}

fn ids(rank: &Rank, shift: usize) -> Ids {
    Tokens::from_fn(rank, &[ROWS, SEQ], |at| ((at[0] * 5 + at[1] * at[1] + shift) % 11) as u32)
}

/// The tokens, with documents of `len` tokens.
fn packed(rank: &Rank, shift: usize, len: usize) -> Ids {
    with_documents_of(&ids(rank, shift), len)
}

fn with_documents_of(ids: &Ids, len: usize) -> Ids {
    let rows = ids.local_extents()[0].local;
    let starts = (0..rows).flat_map(|_| (0..SEQ).map(|at| (at / len * len) as u32));
    ids.with_documents(&starts.collect::<Vec<_>>())
}

/// Asserts that `body`, which returns an output of `Net` and what it must be, returns the same twice on every mesh.
#[track_caller]
fn check(name: &str, body: impl Fn(&Net, &Rank) -> [Stream; 2] + Sync) {
    let meshes = [mesh("tp=2"), mesh("dp=2"), mesh("dp=2,tp=2")];
    assert_parity_on(name, &meshes, |rank| {
        let built = built::<Net>(rank, &sizes());
        let [found, expected] = body(&built.model, rank);
        let [of_found, of_expected] = [&found, &expected].map(Tensor::to_local_vec);
        assert_eq!(of_found, of_expected, "{name}");
        let loss = Loss::mean_of(&(&found * &found));
        let mut numbers: Numbers = Numbers::new();
        numbers.insert("loss".into(), vec![loss.reduce().value() as f32]);
        numbers.extend(gradients_of(&built, &loss.backward().reduce()));
        numbers
    });
}

/// Returns attention with `documents` as an operand.
fn expected(net: &Net, x: &Stream, y: &Stream, documents: &Documents<(Batch, Seq)>) -> Stream {
    let k = net.k.forward(y);
    net.o.forward(&net.core.forward(&(net.q.forward(x), k.clone(), k, documents)))
}

/// Attends in a function that knows nothing of documents.
fn generic<L: Layer<Stream, Out = Tensor<(Batch, Seq, Split<Heads, Tp>, HeadDim)>>>(
    [q, k]: [&L; 2],
    core: &Attention<Heads, Heads, HeadDim>,
    x: &Stream,
) -> L::Out {
    let k = k.forward(x);
    core.forward(&(q.forward(x), k.clone(), k))
}

#[test]
fn documents_are_found() {
    check("through a generic function", |net, rank| {
        let tokens = packed(rank, 0, 5);
        let x = net.embed.forward(&tokens);
        let found = net.o.forward(&generic([&net.q, &net.k], &net.core, &x));
        [found, expected(net, &x, &x, &tokens.documents())]
    });
    check("in a closure that runs later, on a value of a cell", |net, rank| {
        let tokens = packed(rank, 0, 5);
        let cell = RefCell::new(None);
        let later = || cell.borrow().as_ref().map(|x| net.attend(x, x)).expect("it is set");
        let x = net.embed.forward(&tokens);
        *cell.borrow_mut() = Some(x.clone());
        [later(), expected(net, &x, &x, &tokens.documents())]
    });
    check("of a sum with tokens without documents, in any order", |net, rank| {
        let (tokens, kinds) = (packed(rank, 0, 5), ids(rank, 3));
        let [x, kinds] = [&tokens, &kinds].map(|ids| net.embed.forward(ids));
        let found = net.attend(&(&kinds + &x), &(&x + &kinds));
        let x = &x + &kinds;
        [found, expected(net, &x, &x, &tokens.documents())]
    });
    check("of keys that have other tokens of the rows", |net, rank| {
        let tokens = packed(rank, 0, 5);
        let [x, y] = [net.embed.forward(&tokens), net.embed.forward(&ids(rank, 3))];
        [net.attend(&x, &y), expected(net, &x, &y, &tokens.documents())]
    });
    check("of tensors that are made on the rank of tokens", |net, rank| {
        let tokens = packed(rank, 0, 5);
        let made: Stream =
            Tensor::from_fn(tokens.rank(), &[ROWS, SEQ, 8], |at| (at[1] * 3 + at[2]) as f32 * 0.1);
        let plain: Stream =
            Tensor::from_fn(rank, &[ROWS, SEQ, 8], |at| (at[1] * 3 + at[2]) as f32 * 0.1);
        [net.attend(&made, &made), expected(net, &plain, &plain, &tokens.documents())]
    });
    check("of two inputs with equal documents", |net, rank| {
        let [first, second] = [0, 3].map(|shift| packed(rank, shift, 5));
        let x = net.embed.forward(&first) + net.embed.forward(&second);
        [net.attend(&x, &x), expected(net, &x, &x, &first.documents())]
    });
    check("of the operand, whatever the tokens have", |net, rank| {
        let (tokens, other) = (packed(rank, 0, 5), packed(rank, 3, 3));
        let (x, y) = (net.embed.forward(&tokens), net.embed.forward(&ids(rank, 0)));
        let other = other.documents();
        [expected(net, &x, &x, &other), expected(net, &y, &y, &other)]
    });
    check("two towers, of which only pooled values meet", |net, rank| {
        let [first, second] = [5, 3].map(|len| packed(rank, 0, len));
        let [x, y] = [&first, &second].map(|ids| net.embed.forward(ids));
        let [a, b] = [net.attend(&x, &x), net.attend(&y, &y)];
        let documents = [first, second].map(|ids| ids.documents());
        let [c, d] = [expected(net, &x, &x, &documents[0]), expected(net, &y, &y, &documents[1])];
        let product = |a: &Stream, b: &Stream| a * b;
        [product(&a, &b), product(&c, &d)]
    });
}

#[test]
fn exceptions_are_written() {
    check("attention that ignores documents", |net, rank| {
        let [x, plain] = [packed(rank, 0, 5), ids(rank, 0)].map(|ids| net.embed.forward(&ids));
        let k = net.k.forward(&x);
        let core = net.core.ignoring_documents();
        let found = net.o.forward(&core.forward(&(net.q.forward(&x), k.clone(), k)));
        [found, net.attend(&plain, &plain)]
    });
    check("cross attention to a memory without documents", |net, rank| {
        let memory: OnMemory =
            Tensor::from_fn(rank, &[ROWS, 5, 8], |at| (at[1] * 3 + at[2]) as f32 * 0.1);
        let k = net.k.forward(&memory);
        let attend = |x: &Stream| {
            net.o.forward(&net.cross.forward(&(net.q.forward(x), k.clone(), k.clone())))
        };
        [packed(rank, 0, 5), ids(rank, 0)].map(|ids| attend(&net.embed.forward(&ids)))
    });
}

/// Two inputs, two micro-batches, or a value of an earlier one, whose rows have other documents.
#[test]
fn documents_that_contradict_each_other_are_refused() {
    let parts = &["rows of (Batch, Seq) have different documents", "declare other dims"];
    for case in [mesh("1"), mesh("tp=2"), mesh("dp=2,tp=2")] {
        refused(case, FILE, parts, |rank, spot| {
            let net = built::<Net>(rank, &sizes()).model;
            let [x, y] = [5, 3].map(|len| net.embed.forward(&packed(rank, 0, len)));
            spot.next(line!());
            let out = net.attend(&x, &y);
            out.to_local_vec()
        });
        refused(case, FILE, parts, |rank, spot| {
            let net = built::<Net>(rank, &sizes()).model;
            let mut kept: Option<Stream> = None;
            for len in [5, 3] {
                let x = net.embed.forward(&packed(rank, len, len));
                let x = kept.as_ref().map_or_else(|| x.clone(), |kept| &x + kept);
                spot.next(line!());
                kept = Some(net.attend(&x, &x));
            }
            kept.map(|x| x.to_local_vec())
        });
    }
}

/// Each of these attentions is right if it ignores documents.
#[test]
fn rows_whose_documents_decide_nothing_are_refused() {
    for case in [mesh("1"), mesh("tp=2")] {
        refused(
            case,
            FILE,
            &["`cross`: the rows of the keys", "ignoring_documents"],
            |rank, spot| {
                let net = built::<Net>(rank, &sizes()).model;
                let memory = net.k.forward(&net.embed.forward(&packed(rank, 0, 5)));
                let queries: OnMemory = Tensor::from_fn(rank, &[ROWS, 5, 8], |at| at[2] as f32);
                let q = net.q.forward(&queries);
                let all = net.cross.ignoring_documents();
                let _ = all.forward(&(q.clone(), memory.clone(), memory.clone()));
                spot.next(line!());
                let out = net.cross.forward(&(q, memory.clone(), memory));
                out.to_local_vec()
            },
        );
        refused(case, FILE, &["`core`: the rows have padding and hold several"], |rank, spot| {
            let net = built::<Net>(rank, &sizes()).model;
            let tokens = packed(rank, 0, 5);
            let padding = Padding::<(Batch, Seq)>::from_block(rank, ROWS, &vec![0..SEQ; ROWS]);
            let q = net.q.forward(&net.embed.forward(&tokens));
            let _ =
                net.core.ignoring_documents().forward(&(q.clone(), q.clone(), q.clone(), &padding));
            spot.next(line!());
            let out = net.core.forward(&(q.clone(), q.clone(), q, &padding));
            out.to_local_vec()
        });
    }
    // Each rank of tp has some of the rows, and the documents of all.
    refused(mesh("tp=2"), FILE, &["`whole.core`: the documents belong to 4 rows"], |rank, spot| {
        let net = built::<Net>(rank, &sizes()).model;
        let q = net.whole.q.forward(&net.embed.forward(&packed(rank, 0, 5)).slice(Batch, Tp));
        spot.next(line!());
        let out = net.whole.core.forward(&(q.clone(), q.clone(), q));
        out.to_local_vec()
    });
}
