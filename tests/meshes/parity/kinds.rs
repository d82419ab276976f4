//! Stacks of unlike layers, which share a parameter.

use meshwright::nn::{BuildError, Built, RecomputeOverride, Sizes, build};
use meshwright::pipeline::StageCut;
use meshwright::prelude::*;
use meshwright::schedule::ScheduleKind;
use meshwright::tensor::{Settings, ZeroStage};
use meshwright::train::{Config, Trainer};
use meshwright_tests::compare::Report;
use meshwright_tests::data::TokenData;
use meshwright_tests::models::kinds::{
    Batch, Block, Ffn, Hidden, Kinds, Plain, Seq, Stream, Vocab,
};
use meshwright_tests::models::small_sizes;
use meshwright_tests::pipeline_run::train_stages;
use meshwright_tests::run::{Outcome, Setup, train};
use meshwright_tests::step_logs::assert_same_steps;

use super::table::report_parity;

const DATA: TokenData = TokenData { batch: 8, seq: 16, vocab: 29, masked: true };

fn sizes() -> Sizes {
    small_sizes::<Kinds>(&DATA, 4)
}

fn setup(zero: usize, recompute: Option<RecomputeOverride>) -> Setup {
    let mut sizes = sizes();
    sizes.recompute = recompute;
    let setup = Setup { steps: 3, ..Setup::new(sizes) };
    Setup { settings: Settings { zero: ZeroStage::ALL[zero], ..setup.settings }, ..setup }
}

fn trained(mesh: &str, setup: &Setup) -> Outcome {
    train(mesh, setup, |model: &Kinds, rank, turn| {
        let (tokens, targets) = DATA.block(rank, turn);
        model.loss(&tokens, &targets)
    })
}

#[test]
fn unlike_layers_on_meshes() {
    let one = trained("1", &setup(0, None));
    let full = Some(RecomputeOverride::Full);
    let pairs = Some(RecomputeOverride::Every(2.try_into().unwrap()));
    let mut report = Report::default();
    for (mesh, zero, recompute) in [
        ("tp=2", 0, None),
        ("tp=4", 0, full),
        ("dp=2", 0, pairs),
        ("cp=2", 0, None),
        ("fsdp=2", 1, None),
        ("fsdp=2", 3, None),
        ("fsdp=2,tp=2", 3, full),
        ("dp=2,tp=2", 0, None),
    ] {
        let got = trained(mesh, &setup(zero, recompute));
        let label = format!("{mesh}, stage {zero}, {recompute:?}");
        report_parity(&label, &got, &one, &mut report);
    }
    for (mesh, zero, kind, virtual_stages) in [
        ("pp=2", 0, ScheduleKind::OneFOneB, 1),
        ("pp=2,fsdp=2", 3, ScheduleKind::OneFOneB, 1),
        ("pp=2,tp=2", 0, ScheduleKind::Interleaved, 2),
    ] {
        let schedule = kind.generate(2, virtual_stages, 2).unwrap();
        let setup = Setup { micro_batches: 2, ..setup(zero, None) };
        let got = train_stages::<Kinds>(mesh, &setup, &schedule, &StageCut::Auto, DATA);
        report_parity(&format!("{mesh}, stage {zero}"), &got, &one, &mut report);
    }
    report.print();
}

/// The plan of a run counts the parameters of every kind, and its log is that of a step.
#[test]
fn unlike_layers_are_planned_and_trained() {
    for flags in ["--mesh fsdp=2 --zero 3", "--mesh pp=2 --micro-batches 2"] {
        let sizes = "--layers 12 --hidden 32 --ffn 48 --heads 4 --seq 16 --batch 8 --steps 3 --sample-tokens 0";
        let line = format!("train {sizes} {flags}");
        let config = || Config::parse(line.split(' ')).unwrap();
        let dry = Trainer::<Kinds>::new(config()).unwrap().step_logs().unwrap();
        let real = Trainer::<Kinds>::new(config()).unwrap().record_steps().unwrap();
        assert_same_steps(flags, &real, &dry);
    }
}

/// Returns what `visit` finds in the model, or the problems.
fn built<M: Build, T: Send>(
    mesh: &str,
    sizes: &Sizes,
    visit: impl Fn(&Built<M>) -> T + Sync,
) -> Result<T, String> {
    let found = meshwright::run_on(mesh, 0, |rank| {
        Ok(build::<M>(rank, sizes)
            .map(|built| visit(&built))
            .map_err(|error: BuildError| error.to_string()))
    });
    found.unwrap().remove(0)
}

#[test]
fn layers_are_of_the_kinds_of_the_sizes() {
    let paths = |sizes: &Sizes| {
        built::<Kinds, _>("1", sizes, |built| -> Vec<String> {
            let of_layer = |path: &str| path.starts_with("blocks.") && !path.contains("norm");
            built
                .params()
                .iter()
                .map(|param| param.path().to_owned())
                .filter(|path| of_layer(path))
                .collect()
        })
    };
    let plain =
        |layer: usize| ["up.weight", "down.weight"].map(|name| format!("blocks.{layer}.{name}"));
    let gated = |layer: usize| {
        ["up.0.weight", "up.1.bias", "gate.weight", "down.weight"]
            .map(|name| format!("blocks.{layer}.{name}"))
    };
    let mut expected: Vec<String> = plain(0).into();
    // All layers share that of the first one.
    expected.push("blocks.0.gain".to_owned());
    expected.extend(gated(1));
    expected.extend(plain(2));
    expected.extend(gated(3));
    assert_eq!(paths(&sizes()), Ok(expected));
    let ends = sizes().with_kinds("blocks", ["Gated", "Plain", "Plain", "Plain"]);
    let paths = paths(&ends).unwrap();
    assert!(paths.contains(&"blocks.0.gate.weight".to_owned()), "{paths:?}");
    assert_eq!(paths.iter().filter(|path| path.contains("gate")).count(), 1);
}

#[test]
fn wrong_kinds_are_problems() {
    let problem = |sizes: &Sizes| {
        let text = built::<Kinds, _>("1", sizes, |_| ()).unwrap_err();
        text.strip_prefix("the model cannot be built: ").unwrap_or(&text).to_owned()
    };
    for (kinds, expected) in [
        (
            vec!["Plain", "Gates"],
            "`blocks.*`: `Sizes::with_kinds(\"blocks\", ..)` names `Gates`, which is no variant of `Block`: expected \
             `Plain`, `Gated`",
        ),
        (
            vec!["Plain", "Gated", "Gated"],
            "`blocks.*`: `Sizes::with_kinds(\"blocks\", ..)` has 3 kinds, which do not repeat evenly over 4 layers: \
             give one for each layer, or a pattern that is repeated",
        ),
        (
            vec![],
            "`blocks.*`: `Sizes::with_kinds(\"blocks\", ..)` has 0 kinds, which do not repeat evenly over 4 layers: \
             give one for each layer, or a pattern that is repeated",
        ),
    ] {
        assert_eq!(problem(&sizes().with_kinds("blocks", kinds)), expected);
    }
    assert_eq!(
        problem(&sizes().with_kinds("towers", ["Plain"])),
        "`Sizes::with_kinds(\"towers\", ..)` applies to nothing: the model has no `Stack` of an enum in a field of \
         this name"
    );
}

#[model]
#[expect(dead_code, reason = "it is only built")]
struct Alone {
    block: Block,
}

#[model]
struct Unshared {
    plain: Plain,
}

#[forward]
impl Unshared {
    fn forward(&self, x: &Stream) -> Stream {
        self.plain.forward(x)
    }
}

#[test]
fn layers_outside_of_a_stack_have_neither_kinds_nor_shared_fields() {
    let plain = Sizes::new().with(Hidden, 8).with(Ffn, 8).with(Layers, 1);
    assert_eq!(
        built::<Alone, _>("1", &plain, |_| ()).unwrap_err(),
        "the model cannot be built, for 2 reasons:\n  - `block.gain`: is `#[shared]`, but is not inside a `Stack`, \
         whose \
         layers share it: remove the attribute; two fields of one model share a weight by `#[tied(..)]`\n  - `block`: \
         is a `Block`, whose variants are kinds of layers, but is not inside a `Stack`: make it a field of the type of \
         one of them"
    );
    assert_eq!(
        built::<Unshared, _>("1", &plain, |_| ()).unwrap_err(),
        "the model cannot be built: `plain.gain`: is `#[shared]`, but is not inside a `Stack`, whose layers share it: \
         remove the attribute; two fields of one model share a weight by `#[tied(..)]`"
    );
}

#[model]
#[derive(Debug)]
#[expect(dead_code, reason = "it is only built")]
struct Shown {
    #[sharded(tp = "vocab", scatter = Seq)]
    embed: Embedding<Vocab, Hidden>,
    #[frozen]
    norm: LayerNorm<Hidden>,
    #[sharded(tp = "col")]
    pair: (Linear<Hidden, Ffn>, Bias<Ffn>),
    dropout: Dropout,
    gain: Param<(Hidden,)>,
    layers: Stack<Inner>,
}

#[model]
#[derive(Debug)]
#[expect(dead_code, reason = "it is only built")]
struct Inner {
    head: Option<LmHead<Hidden, Vocab>>,
}

#[forward]
impl Inner {
    fn forward(&self, x: &Tensor<(Batch, Hidden)>) -> Tensor<(Batch, Hidden)> {
        x.clone()
    }
}

#[test]
fn models_have_debug_text() {
    let sizes = Sizes::new()
        .with(Hidden, 32)
        .with(Ffn, 48)
        .with(Vocab, 29)
        .with(Layers, 1)
        .with_optional("head", true);
    let text = built::<Shown, _>("tp=2", &sizes, |built| format!("{:?}", built.model));
    assert_eq!(
        text.unwrap(),
        "Shown { embed: Embedding 29 x 32, Split<Vocab, tp>, here 14 x 32, norm: LayerNorm 32, frozen, bias 32, \
         frozen, \
         pair: (Linear 32 x 48, Split<Ffn, tp>, here 32 x 24, Bias 48, Split<Ffn, tp>, here 24), dropout: Dropout 0, \
         gain: Param 32, layers: [Inner { head: Some(LmHead 29 x 32) }] }"
    );
}
