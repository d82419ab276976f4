//! The models of the examples on rows of several documents: on every mesh as on one rank, and as documents in rows of
//! their own.

use meshwright::layout::AxisSet;
use meshwright::models::{gpt2, llama};
use meshwright::nn::{ContextStyle, RecomputeOverride, Sizes, build};
use meshwright::pipeline::StageCut;
use meshwright::prelude::*;
use meshwright::schedule::ScheduleKind;
use meshwright::tensor::{Settings, ZeroStage};
use meshwright_tests::compare::{Report, assert_same_bits};
use meshwright_tests::data::{Batches, PackedData, TokenData, Turn};
use meshwright_tests::models::{plain_gpt2, plain_llama, small_gpt2};
use meshwright_tests::pipeline_run::train_stages;
use meshwright_tests::run::{Outcome, Setup, on_mesh, train, without_noise};

use super::llama::{Case, EVEN};
use super::table::report_parity;

/// Chunks of four positions at cp=2, and of two at cp=4.
const CASE: Case = Case { kv_heads: 2, tied: true, masked: true, batch: 8, ..EVEN };

const MESHES: [&str; 9] = [
    "cp=2",
    "cp=4",
    "cp=2,tp=2",
    "fsdp=2,cp=2",
    "dp=2",
    "tp=4",
    "fsdp=2,tp=2",
    "dp=2,cp=2,tp=2",
    "ep=2,cp=2",
];

const STYLES: [ContextStyle; 5] = [
    ContextStyle::Ring,
    ContextStyle::Gather,
    ContextStyle::Ulysses,
    ContextStyle::Hybrid(None),
    ContextStyle::Hybrid(Some(1)),
];

fn llama() -> Setup {
    Setup { steps: 3, micro_batches: 2, ..CASE.setup::<llama::Llama>() }
}

fn gpt2() -> Setup {
    Setup { steps: 3, micro_batches: 2, ..Setup::new(small_gpt2::<gpt2::Gpt2>(&CASE.data(), 2)) }
}

#[track_caller]
fn train_packed<M: LanguageModel>(mesh: &str, setup: &Setup) -> Outcome {
    train_on::<M>(mesh, setup, PackedData(CASE.data()))
}

#[track_caller]
fn train_on<M: LanguageModel>(mesh: &str, setup: &Setup, data: impl Batches) -> Outcome {
    without_noise(train(mesh, setup, |model: &M, rank, turn| {
        let (tokens, targets) = data.block(rank, turn);
        model.loss(&tokens, &targets)
    }))
}

/// Compares a model with itself on one rank.
#[track_caller]
fn check<M: LanguageModel>(what: &str, setup: &Setup, others: &[(&str, Setup)]) {
    let one = train_packed::<M>("1", setup);
    let mut report = Report::default();
    for (mesh, setup) in others {
        let got = train_packed::<M>(mesh, setup);
        report_parity(&format!("{what} on {mesh}"), &got, &one, &mut report);
    }
    report.print();
}

#[test]
fn every_mesh() {
    // Fewer key-value heads than four ranks of tp.
    let llama_meshes = MESHES.map(|mesh| if mesh == "tp=4" { "tp=2" } else { mesh });
    check::<llama::Llama>("llama", &llama(), &llama_meshes.map(|mesh| (mesh, llama())));
    check::<gpt2::Gpt2>("gpt2", &gpt2(), &MESHES.map(|mesh| (mesh, gpt2())));
}

#[test]
fn a_whole_stream() {
    let meshes = ["cp=2", "cp=2,tp=2", "tp=2"];
    let setup = Setup { steps: 3, micro_batches: 2, ..CASE.setup::<plain_llama::Llama>() };
    let others = meshes.map(|mesh| (mesh, setup.clone()));
    check::<plain_llama::Llama>("plain llama", &setup, &others);
    let sizes = small_gpt2::<plain_gpt2::Gpt2>(&CASE.data(), 2);
    let setup = Setup { sizes, ..gpt2() };
    let others = meshes.map(|mesh| (mesh, setup.clone()));
    check::<plain_gpt2::Gpt2>("plain gpt2", &setup, &others);
}

#[test]
fn every_style() {
    let of = |mesh: &'static str, setup: &Setup, style| {
        let mut setup = setup.clone();
        setup.sizes.context = Some(style);
        (mesh, setup)
    };
    let of_style = |setup: Setup| {
        let all = STYLES.into_iter().flat_map(|style| {
            ["cp=4", "cp=2,tp=2"].map(|mesh| of(mesh, &setup, style)).into_iter()
        });
        all.collect::<Vec<_>>()
    };
    check::<llama::Llama>("llama", &llama(), &of_style(llama()));
    check::<gpt2::Gpt2>("gpt2", &gpt2(), &of_style(gpt2()));
}

#[test]
fn windows_micro_batches_recomputation_and_stages() {
    let with = |setup: Setup, change: &dyn Fn(&mut Setup)| {
        let mut changed = setup;
        change(&mut changed);
        changed
    };
    for recompute in [RecomputeOverride::Full, RecomputeOverride::Attention] {
        let recompute = |setup: &mut Setup| setup.sizes.recompute = Some(recompute);
        let others = ["cp=2", "cp=4", "cp=2,tp=2"].map(|mesh| (mesh, with(llama(), &recompute)));
        check::<llama::Llama>("recomputed llama", &llama(), &others);
        let others = ["1", "cp=2,tp=2"].map(|mesh| (mesh, with(gpt2(), &recompute)));
        check::<gpt2::Gpt2>("recomputed gpt2", &gpt2(), &others);
    }
    let zero = |setup: &mut Setup| {
        setup.settings = Settings { zero: ZeroStage::Parameters, ..setup.settings };
        setup.micro_batches = 4;
    };
    let others = ["fsdp=2,cp=2", "cp=4"].map(|mesh| (mesh, with(llama(), &zero)));
    let four = with(llama(), &|setup| setup.micro_batches = 4);
    check::<llama::Llama>("ZeRO-3 llama", &four, &others);
    let windows = |setup: &mut Setup| setup.sizes.attention.windows = vec![Some(3), None];
    let others = ["cp=2", "cp=4", "tp=2"].map(|mesh| (mesh, with(llama(), &windows)));
    check::<llama::Llama>("llama with windows", &with(llama(), &windows), &others);
}

/// Documents cross stages without a message. The bits are those without stages, unless tied weights are on several of
/// them.
#[test]
fn pipeline_stages() {
    let llama = Case { layers: 4, tied: false, ..CASE }.setup::<llama::Llama>();
    let llama = Setup { steps: 3, micro_batches: 2, ..llama };
    check_stages::<llama::Llama>("llama", &llama);
    let sizes = small_gpt2::<gpt2::Gpt2>(&CASE.data(), 4);
    check_stages::<gpt2::Gpt2>("gpt2", &Setup { sizes, ..gpt2() });
    let mut recomputed = llama;
    recomputed.sizes.recompute = Some(RecomputeOverride::Full);
    check_stages::<llama::Llama>("recomputed llama", &recomputed);
}

#[track_caller]
fn check_stages<M: LanguageModel>(what: &str, setup: &Setup) {
    let data = PackedData(CASE.data());
    let setup = Setup { clips: false, ..setup.clone() };
    let one = train_packed::<M>("1", &setup);
    let mut report = Report::default();
    for kind in [ScheduleKind::OneFOneB, ScheduleKind::ZeroBubbleV, ScheduleKind::DualPipeV] {
        for mesh in ["pp=2", "pp=2,cp=2", "pp=2,tp=2", "pp=2,cp=2,tp=2"] {
            let schedule = kind.generate(2, kind.default_chunks(), setup.micro_batches).unwrap();
            let got = train_stages::<M>(mesh, &setup, &schedule, &StageCut::Even, data);
            let (got, label) = (without_noise(got), format!("{what}, {kind} on {mesh}"));
            report_parity(&label, &got, &one, &mut report);
            if mesh == "pp=2" && what != "gpt2" {
                assert_eq!(got.losses, one.losses, "{label}");
                assert_same_bits(&label, &got.gradients, &one.gradients);
            }
        }
    }
    report.print();
}

/// Losses with documents are others than without, and one document in each row is none.
#[test]
fn documents_change_losses() {
    let packed = train_packed::<llama::Llama>("cp=2", &llama());
    let plain = train_on::<llama::Llama>("cp=2", &llama(), CASE.data());
    assert_ne!(packed.losses, plain.losses);
    let one = train_on::<llama::Llama>("cp=2", &llama(), OneDocument(CASE.data()));
    let mut report = Report::default();
    report_parity("one document in a row", &one, &plain, &mut report);
}

/// Rows of one document each, as documents.
#[derive(Clone, Copy)]
struct OneDocument(TokenData);

impl Batches for OneDocument {
    fn seq(&self) -> usize {
        self.0.seq
    }

    fn block<S: meshwright::layout::Shape>(
        &self,
        rank: &Rank,
        turn: Turn,
    ) -> (Tokens<S>, Targets<S>) {
        let (tokens, targets) = self.0.block(rank, turn);
        let rows = self.0.batch / rank.degree_of(AxisSet::DATA) / turn.count;
        (tokens.with_documents(&vec![0; rows * self.0.seq]), targets)
    }
}

const ROWS: usize = 4;
const SEQ: usize = CASE.seq;

/// The loss of each document in a packed row is that of the document at the beginning of a row of its own.
#[test]
fn each_document_has_the_loss_of_a_row_of_its_own() {
    check_documents_alone::<llama::Llama>(&CASE.setup::<llama::Llama>().sizes);
    check_documents_alone::<gpt2::Gpt2>(&small_gpt2::<gpt2::Gpt2>(&CASE.data(), 2));
}

#[track_caller]
fn check_documents_alone<M: LanguageModel>(sizes: &Sizes) {
    let data = PackedData(CASE.data());
    let token = |row: usize, position: usize| ((row * 31 + position * position) % 61) as u32;
    let ignored = Targets::<(M::Batch, M::Seq)>::IGNORED;
    let documents: Vec<(usize, usize, usize)> = (0..ROWS)
        .flat_map(|row| {
            let starts = data.starts(row);
            let begins = |at: &usize| starts[*at] as usize == *at;
            let first: Vec<usize> = (0..SEQ).filter(begins).collect();
            let ends = first[1..].iter().copied().chain([SEQ]).collect::<Vec<_>>();
            first.into_iter().zip(ends).map(move |(start, end)| (row, start, end))
        })
        .collect();
    assert!(documents.len() > 12, "rows have several documents");
    for mesh in ["1", "cp=2", "cp=4", "cp=2,tp=2"] {
        let losses = on_mesh(mesh, 1, |rank| {
            let built = build::<M>(rank, sizes).unwrap_or_else(|error| panic!("{error}"));
            let loss = |rows: usize, ids: &[u32], targets: &[u32], starts: Option<&[u32]>| {
                let of = |ids: &[u32]| Tokens::from_whole_rows(rank, &[rows, SEQ], 0, ids);
                let (tokens, targets) = (of(ids), of(targets));
                let tokens = starts.map_or(tokens.clone(), |starts| tokens.with_documents(starts));
                built.model.loss(&tokens, &targets).reduce().value()
            };
            let cells = |id: &dyn Fn(usize, usize) -> u32| -> Vec<u32> {
                (0..ROWS)
                    .flat_map(|row| (0..SEQ).map(move |at| (row, at)))
                    .map(|(r, a)| id(r, a))
                    .collect()
            };
            let packed = cells(&token);
            let starts: Vec<u32> = (0..ROWS).flat_map(|row| data.starts(row)).collect();
            let of_document = |&(row, start, end): &(usize, usize, usize)| {
                let is_own = |r: usize, at: usize| r == row && (start..end).contains(&at);
                let targets =
                    cells(&|r, at| if is_own(r, at) { token(r, at + 1) } else { ignored });
                let in_row = loss(ROWS, &packed, &targets, Some(&starts));
                let len = end - start;
                let of_len = |id: &dyn Fn(usize) -> u32, other: u32| -> Vec<u32> {
                    (0..SEQ).map(|at| if at < len { id(start + at) } else { other }).collect()
                };
                let alone = of_len(&|at| token(row, at), 0);
                let targets = of_len(&|at| token(row, at + 1), ignored);
                (in_row, loss(1, &alone, &targets, None))
            };
            documents.iter().map(of_document).collect::<Vec<_>>()
        });
        let mut report = Report::default();
        let (packed, alone): (Vec<f64>, Vec<f64>) = losses[0].iter().copied().unzip();
        report.scalars("loss of a document", mesh, &packed, &alone, 2e-6);
    }
}
