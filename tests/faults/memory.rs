//! Out of memory in the middle of a step.

use std::path::Path;

use meshwright::backend::cpu::CpuBackend;
use meshwright::checkpoint::hf::LlamaConfig;
use meshwright::comm::{CommError, LaunchError, launch};
use meshwright::models::llama::{Batch, Llama, Seq, Stream, Vocab};
use meshwright::nn::build;
use meshwright::prelude::*;
use meshwright::tensor::{Settings, ZeroStage};
use meshwright::train::{MemoryUse, Summary};
use meshwright_tests::data::{TokenData, Turn};
use meshwright_tests::run::train_with_words;

use super::{assert_contains, in_time};

#[test]
fn one_rank_without_memory_stops_all() {
    for mesh in ["fsdp=2", "dp=2,fsdp=2"] {
        for zero in ZeroStage::ALL {
            let label = format!("{mesh} with {zero}");
            let peaks = step(mesh, zero, None).unwrap_or_else(|error| panic!("{label}: {error}"));
            // Slightly less than the peak, and much less.
            for limit in [peaks[1] - 64, peaks[1] * 3 / 4] {
                let Err(error) = step(mesh, zero, Some(limit)) else { panic!("{label}: no error") };
                assert_eq!(error.failures.len(), peaks.len(), "{label}: {error}");
                assert_eq!(error.failures[0].rank, 1, "{label}: the cause comes first");
                let text = error.failures[0].cause.to_string();
                assert_contains(
                    &text,
                    &["out of memory: ", "do not fit in addition to", "activations"],
                );
                for failure in &error.failures[1..] {
                    assert!(failure.stopped_by.is_some(), "{label}: {}", failure.cause);
                }
            }
        }
    }
}

/// Runs one step on every rank, with an optional limit on the second; returns the peak of each rank.
fn step(
    mesh: &str,
    zero: ZeroStage,
    limit: Option<usize>,
) -> Result<Vec<usize>, LaunchError<CommError>> {
    let shape = mesh.parse().unwrap();
    in_time(move || {
        launch(&shape, |comms| {
            let backend = CpuBackend::new(1).expect("one thread starts nothing");
            let memory_limit = limit.filter(|_| comms.rank() == 1);
            let settings = Settings { zero, memory_limit, ..Settings::new(0) };
            let rank = Rank::with_settings(comms, Box::new(backend), settings);
            let sizes = Llama::sizes(&LlamaConfig {
                hidden: 24,
                ffn: 40,
                layers: 3,
                heads: 4,
                kv_heads: 2,
                head_dim: 6,
                vocab: 61,
                ..LlamaConfig::default()
            });
            let built = build::<Llama>(&rank, &sizes).unwrap_or_else(|error| panic!("{error}"));
            let data = TokenData { batch: 8, seq: 13, vocab: 61, masked: false };
            let (tokens, targets) = data.block(&rank, Turn { step: 0, index: 0, count: 1 });
            let loss = built.model.loss(&tokens, &targets);
            let _ = loss.backward().reduce().norm();
            Ok::<_, CommError>(rank.allocator().total_peak())
        })
    })
}

#[test]
fn a_limit_below_the_plan_is_refused() {
    for zero in 0..4 {
        let free = train::<Llama>(zero, None).unwrap();
        let total = total_of(&free);
        let mut too_little = total.planned - 1;
        if zero == 3 {
            // A unit is gathered again for backward then.
            assert_eq!(train::<Llama>(zero, Some(too_little)).unwrap().losses, free.losses);
            too_little /= 2;
        }
        let error = train::<Llama>(zero, Some(too_little)).expect_err("too little");
        let parts = ["--memory-limit: ", "is too low", "\n  parameters", "to use less memory: "];
        assert_contains(&error.to_string(), &parts);
        assert_eq!(train::<Llama>(zero, Some(total.peak)).unwrap().losses, free.losses);
    }
}

/// A Llama that cannot run on zeros.
#[model]
struct Checked {
    llama: Llama,
}

#[forward]
impl Checked {
    fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Stream {
        let x = Layer::forward(&self.llama, tokens);
        assert!(x.to_local_vec().iter().any(|x| *x != 0.0), "the stream has vanished");
        x
    }
}

impl LanguageModel for Checked {
    type Batch = Batch;
    type Seq = Seq;
    type Vocab = Vocab;
    type Config = LlamaConfig;

    const HF_NAMES: &'static [HfName] = &[];

    fn sizes(config: &LlamaConfig) -> Sizes {
        Llama::sizes(config)
    }

    fn loss_of_output(&self, x: &Stream, targets: &Targets<(Batch, Seq)>) -> Loss<(Batch, Seq)> {
        self.llama.loss_of_output(x, targets)
    }

    fn logits_of_output(&self, x: &Stream) -> Tensor<(Batch, Seq, Vocab)> {
        self.llama.logits_of_output(x)
    }
}

/// The dry run of the model fails, so the limit is met in the middle of a step.
#[test]
fn a_run_beyond_its_limit_reports_its_memory() {
    for zero in 0..4 {
        let planned = train::<Llama>(zero, None).unwrap();
        let free = train::<Checked>(zero, None).unwrap();
        let total = total_of(&free);
        // The plan holds the state alone.
        assert!(total.planned > 0 && total.planned < total_of(&planned).planned);
        let limit = (total.planned + total.peak) / 2;
        let error = train::<Checked>(zero, Some(limit)).expect_err("too little");
        let parts = ["out of memory: ", "the limit is ", "parameters", "to use less memory: "];
        assert_contains(&error.to_string(), &parts);
    }
}

fn total_of(summary: &Summary) -> &MemoryUse {
    let total = summary.report.memory.last().expect("the total is last");
    assert_eq!(total.category, "total");
    total
}

fn train<M: LanguageModel>(zero: usize, limit: Option<u64>) -> meshwright::Result<Summary> {
    in_time(move || {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("text");
        std::fs::write(&data, "the quick brown fox jumps over the lazy dog. ".repeat(40)).unwrap();
        let words = format!(
            "--mesh fsdp=2 --zero {zero} --steps 2 --batch 8 --seq 13 --hidden 24 --ffn 40 --layers 3 --heads 4 \
             --threads 1"
        );
        let limit = limit.map(|bytes| format!("--memory-limit {bytes}"));
        let words = words.split_whitespace();
        let limit = limit.iter().flat_map(|limit| limit.split_whitespace());
        let data: [&Path; 2] = ["--data".as_ref(), &data];
        train_with_words::<M>(words.chain(limit).map(AsRef::as_ref).chain(data.map(AsRef::as_ref)))
    })
}
