//! T5 of both kinds and Whisper on every kind of mesh, and cut into stages in the encoder, behind it, and in the
//! decoder.

use std::ops::Range;

use meshwright::data::rows_of_rank;
use meshwright::layout::{AxisSet, Shape};
use meshwright::models::t5::{self, SourcePadding, T5, T5Config};
use meshwright::models::whisper::{self, Whisper, WhisperConfig};
use meshwright::nn::{Module, RecomputeOverride};
use meshwright::pipeline::StageCut;
use meshwright::random;
use meshwright::schedule::ScheduleKind;
use meshwright::tensor::{Loss, Rank, Settings, Targets, Tensor, Tokens, ZeroStage};
use meshwright::train::FamilyModel;
use meshwright_tests::compare::Report;
use meshwright_tests::data::Turn;
use meshwright_tests::pipeline_run::{Job, train_job};
use meshwright_tests::run::{Setup, train};

use super::table::report_parity;

const BATCH: usize = 8;
const SOURCE: usize = 14;
const TARGET: usize = 9;
const VOCAB: usize = 29;

#[test]
fn t5() {
    let config = T5Config {
        hidden: 16,
        ffn: 24,
        encoder_layers: 3,
        decoder_layers: 2,
        heads: 4,
        head_dim: 6,
        vocab: VOCAB,
        buckets: 8,
        max_distance: 9,
        // Not 0.1: a number before a ReLU is then so close to 0 that rounding decides about its gradient.
        dropout: 0.2,
        ..T5Config::default()
    };
    check::<T5>(&config);
    let gated = T5Config { gated: true, tied: false, scaled: false, dropout: 0.1, ..config };
    check::<T5>(&gated);
    check::<T5>(&T5Config { dropout: 0.0, ..gated });
}

#[test]
fn whisper() {
    let config = WhisperConfig {
        hidden: 16,
        mels: 6,
        encoder_layers: 3,
        encoder_heads: 4,
        encoder_ffn: 20,
        decoder_layers: 2,
        decoder_heads: 2,
        decoder_ffn: 24,
        source_positions: SOURCE,
        target_positions: TARGET + 2,
        vocab: VOCAB,
        init_std: 0.2,
        padding: Some(3),
        ..WhisperConfig::default()
    };
    check::<Whisper>(&config);
}

/// A model with a batch of random data.
trait EncoderDecoder: FamilyModel {
    /// The dims that the loss averages over.
    type Over: Shape;

    /// Returns input and targets of a micro-batch.
    fn batch(rank: &Rank, turn: Turn) -> (<Self as Module>::In, Targets<Self::Over>);

    /// Returns the loss of an output.
    fn loss(&self, x: &Self::Out, targets: &Targets<Self::Over>) -> Loss<Self::Over>;
}

/// Returns a number below `below` for an element of a stream of data.
fn number(name: &str, turn: Turn, row: usize, position: usize, below: usize) -> u32 {
    let key = random::subkey(random::key(turn.step, name), (row * 1000 + position) as u64);
    (key % below as u64) as u32
}

/// Returns the rows of the global batch that this rank has of a micro-batch.
fn rows(rank: &Rank, turn: Turn) -> Range<usize> {
    let (position, ranks) = (rank.position(AxisSet::DATA), rank.degree_of(AxisSet::DATA));
    rows_of_rank(BATCH, turn.count, position, ranks).swap_remove(turn.index)
}

/// Returns ids of `len` positions, each a function of its row and position.
fn ids<S: Shape>(
    rank: &Rank,
    turn: Turn,
    len: usize,
    id: impl Fn(usize, usize) -> u32,
) -> Tokens<S> {
    let (rows, id) = (rows(rank, turn), &id);
    let block: Vec<u32> =
        rows.flat_map(|row| (0..len).map(move |position| id(row, position))).collect();
    Tokens::from_micro_batch(rank, &[BATCH, len], [turn.index, turn.count], &block)
}

/// Returns the ids that the decoder reads, and its targets. Their number differs by row, and some rows have none.
fn target<S: Shape>(rank: &Rank, turn: Turn) -> (Tokens<S>, Targets<S>) {
    let id = |row: usize, position: usize| number("target", turn, row, position, VOCAB);
    let read = |row: usize, position: usize| match position {
        0 => 0,
        position => id(row, position - 1),
    };
    let label = |row: usize, position: usize| {
        if position > row % 4 * 3 || (row + position) % 5 == 4 {
            Targets::<S>::IGNORED
        } else {
            id(row, position)
        }
    };
    (ids(rank, turn, TARGET, read), ids(rank, turn, TARGET, label))
}

impl EncoderDecoder for T5 {
    type Over = (t5::Batch, t5::Target);

    fn batch(rank: &Rank, turn: Turn) -> (t5::T5Input, Targets<Self::Over>) {
        let id = |row, position| number("source", turn, row, position, VOCAB);
        let source = ids(rank, turn, SOURCE, id);
        let lengths: Vec<u32> =
            rows(rank, turn).map(|row| 1 + number("length", turn, row, 0, SOURCE)).collect();
        let place = [turn.index, turn.count];
        let lengths = Tokens::from_micro_batch(rank, &[BATCH], place, &lengths);
        let (target, targets) = target(rank, turn);
        ((source, target, SourcePadding::of_lengths(&lengths)), targets)
    }

    fn loss(&self, x: &t5::TargetStream, targets: &Targets<Self::Over>) -> Loss<Self::Over> {
        self.loss_of_output(x, targets)
    }
}

impl EncoderDecoder for Whisper {
    type Over = (whisper::Batch, whisper::Target);

    fn batch(rank: &Rank, turn: Turn) -> (whisper::WhisperInput, Targets<Self::Over>) {
        let (target, targets) = target(rank, turn);
        // Of the rows of the micro-batch.
        let sound = Tensor::from_fn(target.rank(), &[BATCH, 2 * SOURCE, 6], |index| {
            number("sound", turn, index[0], 6 * index[1] + index[2], 2000) as f32 / 1e3 - 1.0
        });
        ((sound, target), targets)
    }

    fn loss(&self, x: &whisper::TargetStream, targets: &Targets<Self::Over>) -> Loss<Self::Over> {
        self.loss_of_output(x, targets)
    }
}

/// Compares meshes with one rank: losses, norms, all gradients and the values after two steps.
fn check<M: EncoderDecoder>(config: &M::Config) {
    let mut report = Report::default();
    let setup = |zero: usize, recompute: Option<RecomputeOverride>| {
        let setup = Setup::new(M::dim_sizes(config));
        let settings = Settings { zero: ZeroStage::ALL[zero], ..setup.settings };
        let mut setup = Setup { steps: 2, settings, ..setup };
        setup.sizes.recompute = recompute;
        setup
    };
    let trained = |mesh: &str, setup: &Setup| {
        train(mesh, setup, |model: &M, rank, turn| {
            let (input, targets) = M::batch(rank, turn);
            M::loss(model, &model.forward(&input), &targets)
        })
    };
    let one = trained("1", &setup(0, None));
    let full = Some(RecomputeOverride::Full);
    for (mesh, zero, recompute) in [
        ("tp=2", 0, None),
        ("dp=2", 0, full),
        ("fsdp=2", 3, full),
        ("dp=2,tp=2", 1, full),
        ("fsdp=2,tp=2", 3, None),
    ] {
        let got = trained(mesh, &setup(zero, recompute));
        let label = format!("{mesh}, stage {zero}, {recompute:?}");
        report_parity(&label, &got, &one, &mut report);
    }
    let schedule = ScheduleKind::OneFOneB.generate(2, 1, 2).unwrap();
    let job = Job {
        seq: TARGET,
        batch: |rank: &Rank, turn| M::batch(rank, turn),
        loss: |model: &M, output: &M::Out, targets: &_| M::loss(model, output, targets),
    };
    // Of the five layers, the first three are the encoder's.
    for (mesh, counts, recompute) in
        [("pp=2", [1, 4], None), ("pp=2", [3, 2], full), ("pp=2,tp=2", [4, 1], None)]
    {
        let setup = Setup { micro_batches: 2, ..setup(0, recompute) };
        let cut = StageCut::Counts(counts.to_vec());
        let got = train_job::<M, _, _, _, _>(mesh, &setup, &schedule, &cut, &job);
        let label = format!("{mesh}, {counts:?}, {recompute:?}");
        report_parity(&label, &got, &one, &mut report);
    }
    report.print();
}
