//! Optional and repeated fields of models.

use meshwright::nn::{RecomputeOverride, Sizes, build};
use meshwright::optim::{AdamW, AdamWOptions};
use meshwright::pipeline::StageCut;
use meshwright::prelude::*;
use meshwright::schedule::ScheduleKind;
use meshwright::tensor::{Settings, ZeroStage};
use meshwright_tests::compare::{Report, assert_same_bits};
use meshwright_tests::data::{TokenData, numbers};
use meshwright_tests::models::repeated::{Batch, Hidden, Repeated};
use meshwright_tests::pipeline_run::train_stages;
use meshwright_tests::run::{Setup, train, without_noise};

use super::table::{check_each, report_parity};

const DATA: TokenData = TokenData { batch: 4, seq: 16, vocab: 29, masked: true };

fn setup() -> Setup {
    Setup { steps: 2, ..Setup::new(Repeated::all_sizes(DATA.vocab)) }
}

#[test]
fn models_with_optional_and_repeated_fields() {
    let setup = setup();
    let of_stage = |zero| Setup { settings: Settings { zero, ..setup.settings }, ..setup.clone() };
    let meshes = [
        ("tp=2", setup.clone()),
        ("dp=2,tp=4", setup.clone()),
        ("cp=2", setup.clone()),
        ("cp=2,tp=2", setup.clone()),
        ("fsdp=2,tp=2", of_stage(ZeroStage::ALL[3])),
        ("dp=2,fsdp=2", of_stage(ZeroStage::ALL[2])),
    ];
    let others = meshes.map(|(mesh, setup)| (mesh, "repeated".to_owned(), setup));
    check_each(&setup, others, |model: &Repeated, rank, turn| {
        let (tokens, targets) = DATA.block(rank, turn);
        model.loss(&tokens, &targets)
    });
}

#[test]
fn layers_with_optional_and_repeated_fields_in_stages() {
    let setup = setup();
    let one = without_noise(train("1", &setup, |model: &Repeated, rank, turn| {
        let (tokens, targets) = DATA.block(rank, turn);
        model.loss(&tokens, &targets)
    }));
    let mut report = Report::default();
    for (mesh, stages) in [("pp=2", 2), ("tp=2,pp=2", 4), ("dp=2,pp=2", 2)] {
        let schedule = ScheduleKind::OneFOneB;
        let schedule = if stages == 4 { ScheduleKind::Interleaved } else { schedule };
        let schedule = schedule.generate(2, stages / 2, 2).unwrap();
        let setup = Setup { micro_batches: 2, ..setup.clone() };
        let got = train_stages::<Repeated>(mesh, &setup, &schedule, &StageCut::Auto, DATA);
        report_parity(&format!("repeated on {mesh}"), &without_noise(got), &one, &mut report);
    }
    report.print();
}

#[test]
fn elements_are_recomputed_as_declared() {
    let run = |recompute| {
        let mut setup = setup();
        setup.sizes.recompute = recompute;
        train("fsdp=2", &setup, |model: &Repeated, rank, turn| {
            let (tokens, targets) = DATA.block(rank, turn);
            model.loss(&tokens, &targets)
        })
    };
    let declared = run(None);
    for recompute in [RecomputeOverride::Off, RecomputeOverride::Attention] {
        let other = run(Some(recompute));
        assert_same_bits("gradients", &other.gradients, &declared.gradients);
    }
}

/// Returns the paths of the parameters, or the problems.
fn paths(mesh: &str, sizes: &Sizes) -> Result<Vec<String>, String> {
    let built = meshwright::run_on(mesh, 0, |rank| {
        let paths = build::<Repeated>(rank, sizes)?.params().into_iter();
        Ok(paths.map(|param| param.path().to_owned()).collect::<Vec<_>>())
    });
    built.map(|mut of_ranks| of_ranks.remove(0)).map_err(|error| error.to_string())
}

#[test]
fn paths_have_the_index_of_an_element() {
    let paths = paths("1", &Repeated::all_sizes(DATA.vocab)).unwrap();
    for path in [
        "blocks.2.norm.weight",
        "blocks.1.attn.q.1.weight",
        "blocks.1.attn.o.0.weight",
        "blocks.0.towers.1.bias.bias",
        "blocks.0.more.2.out_bias.bias",
        "blocks.0.gains.1",
        "blocks.0.shifts.1.0.bias",
        "end.norm.weight",
        "blocks.3.deep.1.2.up.weight",
    ] {
        assert!(paths.iter().any(|other| other == path), "{path} in {paths:?}");
    }
    assert!(!paths.iter().any(|path| path.contains("absent")), "{paths:?}");
    assert!(!paths.iter().any(|path| path.contains("towers.0.out_bias")), "{paths:?}");
}

#[test]
fn missing_and_unknown_settings_are_problems() {
    let sizes = Sizes::new().with(Layers, 2).with_optional("norms", true).with_count("v", 2);
    let message = paths("1", &sizes).unwrap_err();
    for problem in [
        "`blocks.*.deep`: is repeated: set its number of elements by `Sizes::with_count(\"deep\", ..)`",
        "`end.norm`: is optional: say whether the model has it by `Sizes::with_optional(\"norm\", ..)`",
    ] {
        assert!(message.contains(problem), "{message}");
    }

    let sizes = Repeated::all_sizes(DATA.vocab);
    // A field inside of one that the model does not have.
    paths("1", &sizes.clone().with_optional("absent.bias", true)).unwrap();
    let unknown = sizes.with_optional("towers.norm", true).with_count("heads", 1);
    let message = paths("1", &unknown).unwrap_err();
    for problem in [
        "`Sizes::with_optional(\"towers.norm\", ..)` applies to nothing: the model has no `Option` in a field of this \
         name",
        "`Sizes::with_count(\"heads\", ..)` applies to nothing: the model has no `Vec` in a field of this name",
    ] {
        assert!(message.contains(problem), "{message}");
    }
}

#[test]
fn a_model_that_contains_itself_is_a_problem() {
    #[model]
    #[allow(dead_code, reason = "the model is declared only")]
    struct Tree {
        gain: Param<(Hidden,)>,
        children: Vec<Tree>,
    }

    let sizes = Sizes::new().with(Hidden, 4).with_count("children", 2);
    let outcome = meshwright::run_on("1", 0, |rank| {
        build::<Tree>(rank, &sizes)?;
        Ok(())
    });
    let message = outcome.unwrap_err().to_string();
    assert!(message.contains("`children.*.children`: is a `Vec` of"), "{message}");
    assert!(message.contains("a model cannot contain itself"), "{message}");
}

/// Settings of containers in a container without elements, which a program may make whatever the numbers are.
#[test]
fn settings_inside_of_empty_fields_apply() {
    #[model]
    #[allow(dead_code, reason = "the model is declared only")]
    struct Inner {
        bias: Option<Bias<Hidden>>,
    }

    #[model]
    #[allow(dead_code, reason = "the model is declared only")]
    struct Net {
        gain: Param<(Hidden,)>,
        shifts: Vec<Option<Bias<Hidden>>>,
        more: Option<Vec<Bias<Hidden>>>,
        none: [Inner; 0],
    }

    let sizes = Sizes::new()
        .with(Hidden, 4)
        .with_count("shifts", 0)
        .with_optional("shifts", true)
        .with_optional("more", false)
        .with_count("more", 2)
        .with_optional("none.bias", true);
    let build_with = |sizes: &Sizes| {
        let built =
            meshwright::run_on("1", 0, |rank| Ok(build::<Net>(rank, sizes)?.params().len()));
        built.map_err(|error| error.to_string())
    };
    assert_eq!(build_with(&sizes), Ok(vec![1]));
    let message = build_with(&sizes.clone().with_count("shifts", usize::MAX)).unwrap_err();
    assert!(message.contains("`shifts`: has 18446744073709551615 elements, but "), "{message}");
    let message = build_with(&sizes.with_optional("bias", true)).unwrap_err();
    assert!(
        message.contains("`Sizes::with_optional(\"bias\", ..)` applies to nothing"),
        "{message}"
    );
}

/// A recomputed field is on the heap, so that a model can be declared with itself in an `Option`.
#[test]
fn an_optional_model_that_contains_itself_is_a_problem() {
    #[model]
    struct Chain {
        gain: Param<(Hidden,)>,
        #[recompute]
        next: Option<Chain>,
    }

    #[forward]
    impl Chain {
        fn forward(&self, x: &Tensor<(Batch, Hidden)>) -> Tensor<(Batch, Hidden)> {
            self.next.forward(&(x * &self.gain))
        }
    }

    let build_with = |is_present| {
        let sizes = Sizes::new().with(Hidden, 4).with_optional("next", is_present);
        meshwright::run_on("1", 0, |rank| Ok(build::<Chain>(rank, &sizes)?.params().len()))
    };
    assert_eq!(build_with(false).unwrap(), [1]);
    let message = build_with(true).unwrap_err().to_string();
    assert!(message.contains("`next.next`: is an `Option` of"), "{message}");
    assert!(message.contains("a model cannot contain itself"), "{message}");
}

/// Ranks that have the same parameters, but not the same fields, are refused.
#[test]
fn fields_are_those_of_every_rank() {
    #[model]
    struct Noise {
        gain: Param<(Hidden,)>,
        dropouts: Vec<Dropout>,
    }

    let run = |counts: [usize; 2]| {
        meshwright::run_on("dp=2", 0, |rank| {
            let mut sizes =
                Sizes::new().with(Hidden, 6).with_count("dropouts", counts[rank.index()]);
            sizes.dropout = 0.5;
            let net = build::<Noise>(rank, &sizes)?;
            let mut optimizer = AdamW::new(rank, &net.units, AdamWOptions::default());
            rank.set_step(0);
            let mut x: Tensor<(Batch, Hidden)> = numbers(rank, "x", &[4, 6]);
            for dropout in &net.model.dropouts {
                x = dropout.forward(&x);
            }
            let loss = Loss::mean_of(&(x * &net.model.gain));
            optimizer.step(0.1, loss.backward().reduce());
            Ok(())
        })
        .map(drop)
    };
    run([2, 2]).unwrap();
    let message = run([2, 1]).unwrap_err().to_string();
    assert!(message.contains("the configuration of a model"), "{message}");
}
