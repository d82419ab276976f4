//! Context-parallel attention of every style on every kind of mesh, with everything that a layer may do with it: losses
//! and the gradient of every parameter against one rank.

use meshwright::checkpoint::hf::LlamaConfig;
use meshwright::nn::{AttentionOptions, ContextStyle, RecomputeOverride};
use meshwright::pipeline::StageCut;
use meshwright::rotary::RopeParameters;
use meshwright::schedule::ScheduleKind;
use meshwright::tensor::{Settings, ZeroStage};
use meshwright::train::LanguageModel;
use meshwright_tests::compare::Report;
use meshwright_tests::data::{Batches, PackedData, TokenData};
use meshwright_tests::models::context::ContextLm;
use meshwright_tests::models::context_encoder::EncoderLm;
use meshwright_tests::pipeline_run::train_stages;
use meshwright_tests::run::{Outcome, Setup, train};

use super::table::report_parity;

use ContextStyle::{Gather, Hybrid, Ring, Ulysses};

/// A sequence of chunks of three positions on eight ranks, and of eight on three.
pub const DATA: TokenData = TokenData { batch: 16, seq: 48, vocab: 29, masked: true };

/// A model and its data.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Variant {
    /// Causal attention with as many key-value heads as query heads, without dropout of its weights; tied embeddings.
    Causal,
    /// Grouped queries within documents.
    Documents,
    /// One key-value head of the second attention; windows in every second layer, and a soft cap.
    Window,
    /// Windows within documents; tied embeddings.
    DocumentsAndWindow,
    /// Learned biases and sinks of a bidirectional and a causal attention, the first within documents and with a window
    /// in every second layer; grouped queries and tied embeddings.
    Biases,
}

impl Variant {
    pub fn setup(self) -> Setup {
        let (heads, kv_heads) = match self {
            Variant::Causal => (8, 8),
            Variant::Documents => (12, 4),
            Variant::Window => (8, 2),
            Variant::DocumentsAndWindow | Variant::Biases => (8, 4),
        };
        let config = LlamaConfig {
            hidden: 16,
            ffn: 24,
            layers: 2,
            heads,
            kv_heads,
            head_dim: 4,
            vocab: DATA.vocab,
            norm_eps: 1e-5,
            rope: RopeParameters::default(),
            tied: !matches!(self, Variant::Documents | Variant::Window),
            max_positions: DATA.seq + 2,
            ..LlamaConfig::default()
        };
        let mut sizes = match self {
            Variant::Biases => EncoderLm::sizes(&config),
            _ => ContextLm::sizes(&config),
        };
        sizes.init_std = 0.3;
        sizes.dropout = 0.2;
        sizes.recompute = Some(RecomputeOverride::Off);
        if self != Variant::Causal {
            sizes.attention.dropout = 0.15;
        }
        if !matches!(self, Variant::Causal | Variant::Documents) {
            let windows = vec![Some(7), None];
            sizes.attention = AttentionOptions { windows, soft_cap: Some(2.0), ..sizes.attention };
        }
        Setup { steps: 2, ..Setup::new(sizes) }
    }

    /// Trains on one rank, without anything else than the model.
    fn on_one_rank(self) -> Outcome {
        self.on("1", &self.setup(), None)
    }

    /// Trains on a mesh, by a schedule if it has pipeline stages.
    fn on(self, mesh: &str, setup: &Setup, schedule: Option<ScheduleKind>) -> Outcome {
        match self {
            Variant::Documents | Variant::DocumentsAndWindow => {
                run::<ContextLm>(mesh, setup, schedule, PackedData(DATA))
            }
            Variant::Causal | Variant::Window => run::<ContextLm>(mesh, setup, schedule, DATA),
            Variant::Biases => run::<EncoderLm>(mesh, setup, schedule, PackedData(DATA)),
        }
    }
}

fn run<M: LanguageModel>(
    mesh: &str,
    setup: &Setup,
    schedule: Option<ScheduleKind>,
    data: impl Batches,
) -> Outcome {
    match schedule {
        Some(kind) => {
            let schedule = kind.generate(2, kind.default_chunks(), setup.micro_batches).unwrap();
            train_stages::<M>(mesh, setup, &schedule, &StageCut::Auto, data)
        }
        None => train(mesh, setup, |model: &M, rank, turn| {
            let (tokens, targets) = data.block(rank, turn);
            model.loss(&tokens, &targets)
        }),
    }
}

/// Activation checkpointing of the layers.
#[derive(Debug, Clone, Copy)]
enum Recompute {
    None,
    /// Everything but the attentions, as the model declares.
    Saving,
    Full,
    /// The attentions and their projections alone.
    Attention,
}

impl Recompute {
    fn override_of(self) -> Option<RecomputeOverride> {
        match self {
            Recompute::None => Some(RecomputeOverride::Off),
            Recompute::Saving => None,
            Recompute::Full => Some(RecomputeOverride::Full),
            Recompute::Attention => Some(RecomputeOverride::Attention),
        }
    }
}

/// A run: mesh, style, recomputation, ZeRO stage, micro-batches.
type Row = (&'static str, ContextStyle, Recompute, usize, usize);

/// Trains each row, and compares it with one rank.
#[track_caller]
fn check(variant: Variant, rows: &[Row]) {
    check_scheduled(variant, rows.iter().map(|row| (*row, None)));
}

#[track_caller]
fn check_scheduled(variant: Variant, rows: impl IntoIterator<Item = (Row, Option<ScheduleKind>)>) {
    let one = variant.on_one_rank();
    let mut report = Report::default();
    for ((mesh, style, recompute, zero, micro_batches), schedule) in rows {
        let mut setup = Setup { micro_batches, ..variant.setup() };
        setup.settings = Settings { zero: ZeroStage::ALL[zero], ..setup.settings };
        setup.sizes.context = Some(style);
        setup.sizes.recompute = recompute.override_of();
        let got = variant.on(mesh, &setup, schedule);
        let label = format!(
            "{variant:?} by {style} on {mesh}, recompute {recompute:?}, ZeRO {zero}, {micro_batches} micro-batches, \
             {schedule:?}"
        );
        report_parity(&label, &got, &one, &mut report);
    }
    report.print();
}

#[test]
fn causal_attention_on_meshes_of_cp() {
    check(
        Variant::Causal,
        &[
            ("cp=2", Ring, Recompute::None, 0, 1),
            ("cp=4", Ulysses, Recompute::Saving, 3, 1),
            ("cp=2,tp=2", Gather, Recompute::None, 0, 4),
            ("dp=2,cp=2", Ulysses, Recompute::None, 0, 1),
            ("fsdp=2,cp=2", Hybrid(None), Recompute::Full, 3, 4),
            ("cp=8", Ulysses, Recompute::Full, 0, 4),
            ("cp=4,tp=2", Ring, Recompute::Attention, 0, 1),
        ],
    );
}

/// Two sequences for three data ranks, so that one has none; within documents, with biases and sinks.
#[test]
fn data_ranks_without_rows_match_one_rank() {
    let data = PackedData(TokenData { batch: 2, ..DATA });
    let setup = Variant::Biases.setup();
    let one = run::<EncoderLm>("1", &setup, None, data);
    let mut report = Report::default();
    for (mesh, style) in [
        ("dp=3,cp=2", Ring),
        ("dp=3,cp=2", Ulysses),
        ("dp=3,cp=2", Gather),
        ("dp=3,cp=2", Hybrid(None)),
        ("fsdp=3,cp=2", Ring),
    ] {
        let mut setup = setup.clone();
        setup.sizes.context = Some(style);
        let got = run::<EncoderLm>(mesh, &setup, None, data);
        report_parity(&format!("{style} on {mesh}, two sequences"), &got, &one, &mut report);
    }
    report.print();
}

#[test]
fn documents_on_meshes_of_cp() {
    check(
        Variant::Documents,
        &[
            ("cp=2", Ulysses, Recompute::Full, 0, 4),
            ("cp=3", Ring, Recompute::Saving, 0, 1),
            ("cp=3", Ulysses, Recompute::None, 0, 4),
            ("cp=4", Gather, Recompute::Full, 1, 1),
            ("cp=2,tp=2", Ring, Recompute::Saving, 0, 1),
            ("fsdp=2,cp=2", Gather, Recompute::Attention, 1, 4),
            ("cp=4,tp=2", Hybrid(Some(2)), Recompute::None, 0, 1),
            ("dp=2,cp=2,tp=2", Gather, Recompute::None, 0, 4),
            ("dp=2,fsdp=2,cp=2", Ulysses, Recompute::Saving, 2, 4),
        ],
    );
}

#[test]
fn windows_on_meshes_of_cp() {
    check(
        Variant::Window,
        &[
            ("cp=2", Gather, Recompute::Attention, 0, 1),
            ("cp=3", Hybrid(None), Recompute::None, 0, 1),
            ("cp=4", Hybrid(Some(2)), Recompute::Full, 3, 4),
            ("cp=2,tp=2", Hybrid(None), Recompute::Saving, 0, 1),
            ("dp=2,cp=2", Ring, Recompute::Full, 0, 4),
            ("fsdp=2,cp=2", Ulysses, Recompute::Saving, 2, 4),
            ("cp=8", Ring, Recompute::None, 0, 1),
            ("cp=8", Hybrid(Some(4)), Recompute::None, 0, 1),
        ],
    );
}

#[test]
fn documents_and_windows_on_meshes_of_cp() {
    check(
        Variant::DocumentsAndWindow,
        &[
            ("cp=2", Hybrid(None), Recompute::None, 0, 4),
            ("cp=3", Gather, Recompute::Attention, 0, 1),
            ("cp=4", Ring, Recompute::None, 1, 4),
            ("cp=2,tp=2", Ulysses, Recompute::Full, 0, 4),
            ("fsdp=2,cp=2", Ring, Recompute::None, 0, 1),
            ("cp=8", Gather, Recompute::None, 0, 1),
            ("cp=8", Hybrid(Some(2)), Recompute::Saving, 0, 1),
            ("cp=4,tp=2", Ulysses, Recompute::None, 0, 1),
            ("fsdp=2,cp=2,tp=2", Ring, Recompute::Attention, 3, 4),
        ],
    );
}

#[test]
fn learned_biases_on_meshes_of_cp() {
    check(
        Variant::Biases,
        &[
            ("cp=2", Hybrid(None), Recompute::Full, 0, 4),
            ("cp=3", Ring, Recompute::Attention, 0, 1),
            ("cp=3", Gather, Recompute::None, 0, 1),
            ("cp=4", Ulysses, Recompute::None, 1, 4),
            ("cp=4", Hybrid(Some(2)), Recompute::Saving, 0, 1),
            ("cp=2,tp=2", Ring, Recompute::Full, 0, 4),
            ("cp=2,tp=2", Ulysses, Recompute::Saving, 0, 1),
            ("dp=2,cp=2", Gather, Recompute::Full, 0, 4),
            ("fsdp=2,cp=2", Ring, Recompute::Saving, 3, 4),
            ("cp=8", Ring, Recompute::None, 0, 1),
            ("fsdp=2,cp=2,tp=2", Gather, Recompute::Attention, 3, 1),
            ("dp=2,fsdp=2,cp=2", Hybrid(None), Recompute::None, 2, 4),
        ],
    );
}

#[test]
fn meshes_of_cp_with_pipeline_stages() {
    let stages = |row, kind| (row, Some(kind));
    check_scheduled(
        Variant::Documents,
        [
            stages(("pp=2,cp=2", Ring, Recompute::Full, 0, 4), ScheduleKind::OneFOneB),
            stages(("pp=2,cp=2,tp=2", Ulysses, Recompute::None, 0, 4), ScheduleKind::ZeroBubbleH1),
        ],
    );
    check_scheduled(
        Variant::DocumentsAndWindow,
        [
            stages(("pp=2,cp=2", Gather, Recompute::Saving, 0, 4), ScheduleKind::ZeroBubbleH1),
            stages(
                ("pp=2,fsdp=2,cp=2,tp=2", Hybrid(None), Recompute::None, 1, 4),
                ScheduleKind::OneFOneB,
            ),
        ],
    );
    check_scheduled(
        Variant::Biases,
        [
            stages(("pp=2,cp=2", Ring, Recompute::Saving, 0, 4), ScheduleKind::ZeroBubbleH1),
            stages(("pp=2,cp=2,tp=2", Ulysses, Recompute::None, 0, 4), ScheduleKind::OneFOneB),
            stages(("pp=2,fsdp=2,cp=2", Gather, Recompute::Full, 3, 4), ScheduleKind::OneFOneB),
        ],
    );
}

#[test]
fn sixteen_ranks() {
    check(Variant::Documents, &[("dp=2,cp=4,tp=2", Gather, Recompute::None, 0, 1)]);
    check(Variant::Window, &[("dp=2,cp=4,tp=2", Ring, Recompute::Full, 0, 4)]);
    check(Variant::Biases, &[("dp=2,fsdp=2,cp=2,tp=2", Ring, Recompute::None, 3, 1)]);
}
