//! Bugs in model code: every rank stops with an error that names the call site.

use meshwright::backend::cpu::CpuBackend;
use meshwright::comm::{CommError, LaunchError, launch};
use meshwright::layout::AxisId;
use meshwright::nn::{Sizes, build};
use meshwright::prelude::*;

use super::{assert_contains, in_time};

dims! { Batch @ data, Seq, Hidden, Ffn, Vocab }

type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

/// A model whose rank 1 issues an extra gather.
#[model]
struct Skewed {
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "row", scatter = Seq)]
    down: Linear<Ffn, Hidden>,
}

#[forward]
impl Skewed {
    fn forward(&self, x: &Stream) -> Stream {
        if x.rank().index() == 1 {
            drop(x.gather(Seq)); // the extra call
        }
        self.down.forward(&self.up.forward(x))
    }
}

/// A model whose rank 1 contracts a shard of another size.
#[model]
struct Uneven {
    #[sharded(tp = "col")]
    read: Param<(Hidden, Ffn)>,
    #[sharded(tp = "row")]
    write: Param<(Ffn, Hidden)>,
}

#[forward]
impl Uneven {
    fn forward(&self, x: &Stream) -> Stream {
        let partial = x.contract(&self.read).contract(&self.write);
        if x.rank().index() == 1 {
            return partial.all_reduce().slice(Seq, Tp); // the other way
        }
        partial.reduce_scatter(Seq) // the usual way
    }
}

/// A model whose rank 1 panics.
#[model]
struct Panicking {
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "row", scatter = Seq)]
    down: Linear<Ffn, Hidden>,
}

#[forward]
impl Panicking {
    fn forward(&self, x: &Stream) -> Stream {
        let inner = self.up.forward(x);
        assert_ne!(x.rank().index(), 1, "a mistake of the author's");
        self.down.forward(&inner)
    }
}

#[test]
fn an_extra_call_is_named_on_every_rank() {
    for mesh in ["tp=2", "dp=2,tp=2"] {
        let error = failure::<Skewed>(mesh);
        let members = if mesh == "tp=2" { 2 } else { 4 };
        assert_eq!(error.failures.len(), members, "{mesh}: {error}");
        for failure in &error.failures {
            let text = failure.cause.to_string();
            if failure.rank < 2 {
                // The two ranks with different calls.
                let parts =
                    ["different calls", "up.weight", "Skewed::forward", &line("extra call")];
                assert_contains(&text, &parts);
            } else {
                // The other ranks, which wait for them in a gradient reduction or in the loss.
                assert_contains(&text, &["rank"]);
            }
        }
    }
}

#[test]
fn mismatched_calls_are_named_with_their_lines() {
    let error = failure::<Uneven>("tp=2");
    assert_eq!(error.failures.len(), 2, "{error}");
    for failure in &error.failures {
        let parts =
            ["all_reduce", "reduce_scatter", "write", &line("other way"), &line("usual way")];
        assert_contains(&failure.cause.to_string(), &parts);
    }
}

#[test]
fn a_panic_stops_every_rank() {
    for (mesh, ranks) in [("tp=2", 2), ("dp=2", 2), ("dp=2,tp=2", 4), ("tp=4", 4)] {
        let error = failure::<Panicking>(mesh);
        assert_eq!(error.failures.len(), ranks, "{mesh}: {error}");
        assert_eq!(error.failures[0].rank, 1, "{mesh}: the cause comes first");
        assert_contains(&error.to_string(), &["a mistake of the author's", file!()]);
        for failure in &error.failures[1..] {
            assert!(failure.stopped_by.is_some(), "{mesh}: {}", failure.cause);
        }
    }
}

/// A model that predicts a token from the previous one.
#[model]
struct Predictor {
    #[sharded(tp = "vocab")]
    embed: Embedding<Vocab, Hidden>,
    #[sharded(tp = "vocab")]
    head: LmHead<Hidden, Vocab>,
}

#[test]
fn ids_beyond_the_vocabulary_name_their_field() {
    let sizes = Sizes::new().with(Vocab, 8).with(Hidden, 4);
    for (token, target, part) in [
        (8, 0, "`embed.weight`: token id 8 is beyond the vocabulary of 8"),
        (0, 9, "`head.weight`: target id 9 is beyond the vocabulary of 8"),
    ] {
        let outcome = meshwright::run_on("tp=2", 0, |rank| {
            let model = build::<Predictor>(rank, &sizes)?.model;
            let block = |ids: &[u32]| Tokens::<(Batch, Seq)>::from_block(rank, &[1, 3], ids);
            let targets = block(&[0, target, Targets::<(Batch, Seq)>::IGNORED]);
            let x = model.embed.forward(&block(&[0, token, 1]));
            Ok(model.head.loss(&x, &targets).reduce().value())
        });
        assert_contains(&outcome.expect_err(part).to_string(), &[part]);
    }
}

/// Trains one step and returns the failure.
fn failure<M: Module<In = Stream, Out = Stream> + Build>(mesh: &str) -> LaunchError<CommError> {
    let shape = mesh.parse().unwrap();
    let outcome = in_time(move || {
        launch(&shape, |comms| {
            let backend = CpuBackend::new(1).expect("one thread starts nothing");
            let rank = Rank::new(comms, Box::new(backend), 0);
            let sizes = Sizes::new().with(Hidden, 8).with(Ffn, 8);
            let built = build::<M>(&rank, &sizes).unwrap_or_else(|error| panic!("{error}"));
            let block = vec![0.5; 4 / rank.degree(AxisId::Dp) * 8 / rank.degree(AxisId::Tp) * 8];
            let x = Tensor::from_block(&rank, &[4, 8, 8], &block);
            let loss = Loss::mean_of(&built.model.forward(&x));
            let norm = loss.backward().reduce().norm();
            Ok::<f64, CommError>(norm)
        })
    });
    outcome.expect_err("a fault")
}

/// Returns `calls.rs:LINE` of the line that ends in `comment`.
fn line(comment: &str) -> String {
    let ending = format!("// the {comment}");
    let found = include_str!("calls.rs").lines().position(|line| line.ends_with(&ending));
    format!("calls.rs:{}:", found.expect("the comment is there") + 1)
}
