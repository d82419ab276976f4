//! Pipelines that are unusual: few micro-batches, uneven ones, uneven stages, user-defined schedules, and boundaries
//! with four parts. All against one rank.

use std::sync::Arc;

use meshwright::checkpoint::hf::Gpt2Config;
use meshwright::models::llama::Llama;
use meshwright::nn::RecomputeOverride;
use meshwright::optim::{AdamWOptions, MuonOptions};
use meshwright::pipeline::StageCut;
use meshwright::prelude::*;
use meshwright::schedule::{ScheduleKind, csv};
use meshwright::tensor::{Settings, ZeroStage};
use meshwright_tests::compare::Report;
use meshwright_tests::data::TokenData;
use meshwright_tests::models::{nested_llama, small_sizes};
use meshwright_tests::pipeline_run::train_stages;
use meshwright_tests::run::Setup;

use super::llama::Case;
use super::pipeline::{DEEP, assert_bits, generate, train_whole};
use super::table::report_parity;

/// Every fourth micro-batch of one sequence, from micro-batch 3 on, has no target that counts.
#[test]
fn few_micro_batches_have_the_bits_of_one_rank() {
    for (ranks, micro_batches) in [(2, 1), (4, 1), (4, 2), (4, 3), (2, 5)] {
        let case = Case { batch: micro_batches, masked: true, ..DEEP };
        let setup = Setup { steps: 2, micro_batches, clips: false, ..case.setup::<Llama>() };
        let one = train_whole::<Llama>(&setup, case.data());
        let named = ScheduleKind::ALL.map(|kind| (kind, generate(kind, ranks, micro_batches)));
        let three = ScheduleKind::Interleaved;
        let three = (three, three.generate(ranks, 3, micro_batches).unwrap());
        // There are not twelve layers.
        let all = named.into_iter().chain((ranks == 2).then_some(three));
        for (kind, schedule) in all {
            let (mesh, stages) = (format!("pp={ranks}"), schedule.stages());
            let got = train_stages::<Llama>(&mesh, &setup, &schedule, &StageCut::Auto, case.data());
            let label = format!("{kind} on {mesh}, {stages} stages, {micro_batches} micro-batches");
            assert_bits(&label, &got, &one);
        }
    }
}

/// Five sequences in four micro-batches: the messages of one edge have two sizes.
#[test]
fn uneven_micro_batches_have_the_bits_of_one_rank() {
    let case = Case { batch: 5, masked: true, ..DEEP };
    let setup = Setup { steps: 2, micro_batches: 4, clips: false, ..case.setup::<Llama>() };
    let one = train_whole::<Llama>(&setup, case.data());
    for kind in ScheduleKind::ALL {
        let schedule = generate(kind, 2, 4);
        let got = train_stages::<Llama>("pp=2", &setup, &schedule, &StageCut::Even, case.data());
        assert_bits(&format!("{kind}, uneven micro-batches"), &got, &one);
    }
}

#[test]
fn one_heavy_stage_has_the_bits_of_one_rank() {
    let case = Case { batch: 4, ..DEEP };
    let setup = Setup { steps: 2, micro_batches: 4, clips: false, ..case.setup::<Llama>() };
    let one = train_whole::<Llama>(&setup, case.data());
    for counts in [[5, 1, 1, 1], [1, 5, 1, 1], [1, 1, 1, 5]] {
        let cut = StageCut::Counts(counts.to_vec());
        for (ranks, kind) in [
            (4, ScheduleKind::ZeroBubbleH1),
            (2, ScheduleKind::Interleaved),
            (2, ScheduleKind::DualPipeV),
        ] {
            let (mesh, schedule) = (format!("pp={ranks}"), generate(kind, ranks, 4));
            let got = train_stages::<Llama>(&mesh, &setup, &schedule, &cut, case.data());
            assert_bits(&format!("{kind} on {mesh}, {counts:?}"), &got, &one);
        }
    }
}

/// Inputs of segments are offloaded and come back in the order of the schedule.
#[test]
fn offloading_stages_have_the_bits_of_one_rank() {
    let case = Case { batch: 4, ..DEEP };
    let setup = case.setup::<nested_llama::Llama>();
    let setup = Setup { steps: 3, micro_batches: 4, clips: false, ..setup };
    let one = train_whole::<nested_llama::Llama>(&setup, case.data());
    for kind in [ScheduleKind::OneFOneB, ScheduleKind::ZeroBubbleV, ScheduleKind::ZeroBubbleH1] {
        let (schedule, cut) = (generate(kind, 2, 4), StageCut::Auto);
        let got = train_stages::<nested_llama::Llama>("pp=2", &setup, &schedule, &cut, case.data());
        assert_bits(&format!("offloading, {kind}"), &got, &one);
    }
}

/// Schedules of a user, in orders that no generator makes.
#[test]
fn own_schedules_match_one_rank() {
    let case = Case { batch: 3, masked: true, ..DEEP };
    let setup = Setup { steps: 2, micro_batches: 3, ..case.setup::<Llama>() };
    let one = train_whole::<Llama>(&setup, case.data());
    let mut report = Report::default();
    for (mesh, cut, text) in [
        // Backward passes in another order on each rank; weight gradients late, and in descending order.
        ("pp=2", "4,4", "0F2,0F0,0F1,0I0,0I1,0I2,0W2,0W0,0W1\n1F0,1F2,1F1,1I0,1B2,1I1,1W1,1W0\n"),
        // Ranks with another number of stages, neighbors on one rank in the middle of the chain.
        (
            "pp=2",
            "1,1,4,2",
            "0F0,1F0,0F1,1F1,3F0,3B0,0F2,1F2,3F1,3I1,3F2,3B2,3W1,1B2,0B2,1B0,0I0,1B1,0B1,0W0\n\
             2F0,2F1,2B0,2F2,2I1,2I2,2W2,2W1\n",
        ),
        // Stages that run backward through the ranks.
        (
            "pp=3",
            "3,2,3",
            "2F0,2B0,2F1,2B1,2F2,2B2\n1F0,1F1,1B0,1F2,1B1,1B2\n0F0,0F1,0F2,0B0,0B1,0B2\n",
        ),
        // Pairs that may overlap.
        (
            "pp=2",
            "4,4",
            "0F0,0F1,(0F2;0B0)OVERLAP_F_B,0B1,0B2\n1F0,(1F1;1B0)OVERLAP_F_B,(1F2;1B1)OVERLAP_F_B,1B2\n",
        ),
    ] {
        let schedule = csv::read(text).unwrap();
        let cut: StageCut = cut.parse().unwrap();
        let got = train_stages::<Llama>(mesh, &setup, &schedule, &cut, case.data());
        report_parity(&format!("{text} on {mesh}"), &got, &one, &mut report);
    }
    report.print();
}

/// Muon orthogonalizes whole matrices, and the tied embedding is held by two ranks.
#[test]
fn muon_with_clipping_matches_one_rank() {
    let case = Case { tied: true, masked: true, batch: 8, ..DEEP };
    let adamw = AdamWOptions::default();
    let optimizer = Arc::new(MuonOptions { momentum: 0.95, adamw });
    let setup = Setup { optimizer, steps: 3, micro_batches: 4, ..case.setup::<Llama>() };
    let setup =
        Setup { settings: Settings { zero: ZeroStage::Optimizer, ..setup.settings }, ..setup };
    let one = train_whole::<Llama>(&setup, case.data());
    let mut report = Report::default();
    for (mesh, kind) in [
        ("pp=4", ScheduleKind::ZeroBubbleH1),
        ("fsdp=2,pp=2", ScheduleKind::ZeroBubbleV),
        ("pp=2,tp=2", ScheduleKind::Interleaved),
    ] {
        let schedule = generate(kind, if mesh == "pp=4" { 4 } else { 2 }, 4);
        let cut = StageCut::Auto;
        let got = train_stages::<Llama>(mesh, &setup, &schedule, &cut, case.data());
        report_parity(&format!("Muon, {kind} on {mesh}"), &got, &one, &mut report);
    }
    report.print();
}

dims! {
    Batch @ data,
    Seq,
    Hidden,
    Ffn,
    Gate,
    Vocab,
}

type Ids = Tokens<(Batch, Seq)>;
type Stream = Tensor<(Batch, Seq, Hidden)>;
/// The stream; numbers that all layers read, and the end does not; the ids of the tokens; and a sum over the layers.
type Flow = (Stream, Tensor<(Batch, Seq, Gate)>, Ids, Stream);

/// Makes the four parts from the tokens.
#[model]
struct Start {
    embed: Embedding<Vocab, Hidden>,
    gates: Embedding<Vocab, Gate>,
}

#[forward]
impl Start {
    fn forward(&self, ids: &Ids) -> Flow {
        let x = self.embed.forward(ids);
        (x.clone(), self.gates.forward(ids), ids.clone(), x)
    }
}

/// Reads the tokens again, so that the ids of another micro-batch would show.
#[model]
struct Layer {
    norm: RmsNorm<Hidden>,
    again: Embedding<Vocab, Hidden>,
    gate: Linear<Gate, Ffn>,
    up: Linear<Hidden, Ffn>,
    down: Linear<Ffn, Hidden>,
}

#[forward]
impl Layer {
    fn forward(&self, (x, gate, ids, sum): &Flow) -> Flow {
        let x = x + self.again.forward(ids);
        let hidden = self.up.forward(&self.norm.forward(&x)).silu() * self.gate.forward(gate);
        let y = self.down.forward(&hidden);
        (&x + y.clone(), gate.clone(), ids.clone(), sum + y)
    }
}

/// Drops the parts that only layers read.
#[model]
struct End {
    norm: RmsNorm<Hidden>,
}

#[forward]
impl End {
    fn forward(&self, (x, _, _, sum): &Flow) -> Stream {
        self.norm.forward(&(x + sum.clone()))
    }
}

#[model]
struct FourParts {
    #[pipeline_stage]
    start: Start,
    #[pipeline_stage]
    layers: Stack<Layer>,
    #[pipeline_stage]
    end: End,
    #[pipeline_stage(last)]
    #[tied(start.embed)]
    head: LmHead<Hidden, Vocab>,
}

#[forward]
impl FourParts {
    fn forward(&self, ids: &Ids) -> Stream;
}

impl LanguageModel for FourParts {
    type Batch = Batch;
    type Seq = Seq;
    type Vocab = Vocab;
    type Config = Gpt2Config;

    const HF_NAMES: &'static [HfName] = &[];

    fn sizes(config: &Gpt2Config) -> Sizes {
        let Gpt2Config { hidden, ffn, vocab, layers, .. } = *config;
        let sizes = Sizes::new().with(Hidden, hidden).with(Ffn, ffn).with(Gate, 5);
        sizes.with(Vocab, vocab).with(Layers, layers)
    }

    fn loss_of_output(&self, x: &Stream, targets: &Targets<(Batch, Seq)>) -> Loss<(Batch, Seq)> {
        self.head.loss(x, targets)
    }

    fn logits_of_output(&self, x: &Stream) -> Tensor<(Batch, Seq, Vocab)> {
        self.head.logits(x)
    }
}

/// Boundaries of two streams, another tensor and ids: gradients come back for each of the three, zeros where none
/// arrives.
#[test]
fn four_parts_match_one_rank() {
    let data = TokenData { batch: 8, seq: 6, vocab: 37, masked: true };
    let mut report = Report::default();
    for recompute in [None, Some("full")] {
        let mut sizes = small_sizes::<FourParts>(&data, 8);
        sizes.recompute = recompute.map(|text| text.parse::<RecomputeOverride>().unwrap());
        let setup = Setup { steps: 3, micro_batches: 4, ..Setup::new(sizes) };
        let one = train_whole::<FourParts>(&setup, data);
        for (mesh, kind) in [
            ("pp=4", ScheduleKind::ZeroBubbleH1),
            ("pp=4", ScheduleKind::DualPipeV),
            ("pp=2", ScheduleKind::Interleaved),
            ("fsdp=2,pp=2", ScheduleKind::ZeroBubbleV),
        ] {
            let schedule = generate(kind, if mesh == "pp=4" { 4 } else { 2 }, 4);
            let got = train_stages::<FourParts>(mesh, &setup, &schedule, &StageCut::Even, data);
            let label = format!("four parts, {recompute:?}, {kind} on {mesh}");
            report_parity(&label, &got, &one, &mut report);
        }
    }
    report.print();
}
