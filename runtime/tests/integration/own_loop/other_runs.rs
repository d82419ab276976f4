//! Checkpoints of the trainer in a loop and the reverse, pipeline stages, and optimizers that skip steps.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use meshwright::layout::AxisId;
use meshwright::models::LlamaConfig;
use meshwright::models::llama::Llama;
use meshwright::nn::Built;
use meshwright::optim::{AdamW, AdamWOptions, OptimizerState};
use meshwright::pipeline::{StageCut, StageRequest, build_stages, plan_stages};
use meshwright::prelude::*;
use meshwright::rotary::RopeParameters;
use meshwright::schedule::{ScheduleKind, verify};
use meshwright::train::{Config, LanguageModel, LoopCheckpoints, TrainingState, TrainingStateMut};

/// The model of [`trainer`].
fn sizes() -> Sizes {
    Llama::sizes(&LlamaConfig {
        hidden: 16,
        ffn: 16,
        layers: 2,
        heads: 2,
        kv_heads: 2,
        head_dim: 8,
        vocab: 256,
        norm_eps: 1e-5,
        rope: RopeParameters::default(),
        tied: false,
        max_positions: 8,
        ..LlamaConfig::default()
    })
}

fn trainer(flags: &str) -> Result<Trainer<Llama>> {
    let line = format!(
        "train --steps 2 --layers 2 --hidden 16 --heads 2 --ffn 16 --seq 8 --batch 4 --sample-tokens 0 {flags}"
    );
    Trainer::new(Config::parse(line.split_whitespace())?)
}

/// Builds the model on a mesh, as stages if it has some.
fn build_llama(rank: &Rank) -> Result<Built<Llama>> {
    let stages = rank.degree(AxisId::Pp);
    if stages == 1 {
        return Ok(build(rank, &sizes())?);
    }
    let schedule = ScheduleKind::OneFOneB.generate(stages, 1, stages).unwrap();
    let schedule = Arc::new(verify(&schedule).unwrap());
    let placement = &schedule.lowered().placement;
    let request = StageRequest { placement, cut: &StageCut::Even, seq: 8 };
    let plan = plan_stages::<Llama>(rank, &sizes(), &request)?;
    Ok(build_stages(rank, &sizes(), &plan)?)
}

type Values = BTreeMap<String, Vec<f32>>;

/// Returns the parameters on all ranks of a mesh, of `seed` or as loaded from `dir`, and saves them to `save`.
fn params(mesh: &str, seed: u64, dir: Option<&Path>, save: Option<&Path>) -> Result<Values> {
    let by_rank = run_on(mesh, seed, |rank| {
        let built = build_llama(rank)?;
        let params = built.params();
        let mut optimizer = AdamW::new(rank, &built.units, AdamWOptions::default());
        if let Some(dir) = dir {
            let mut checkpoints = LoopCheckpoints::open(rank, dir)?;
            let state =
                TrainingStateMut { params: &params, optimizer: &mut optimizer, average: None };
            assert_eq!(checkpoints.load_state(rank, state)?.unwrap().step(), 5);
        }
        if let Some(save) = save {
            let mut checkpoints = LoopCheckpoints::open(rank, save)?;
            let state = TrainingState { params: &params, optimizer: &optimizer, average: None };
            checkpoints.save_state(rank, 5, &state, &())?;
        }
        let owned = params.iter().filter(|param| param.is_owned());
        Ok(owned.map(|param| (param.path().to_owned(), param.gather(rank))).collect::<Values>())
    });
    Ok(by_rank?.into_iter().flatten().collect())
}

#[test]
fn pipeline_stages_are_saved_and_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let expected = params("1", 7, None, None).unwrap();
    for (from, to) in [("pp=2", "1"), ("1", "pp=2,fsdp=2"), ("pp=2,tp=2", "pp=2")] {
        let folder = dir.path().join(format!("{from} {to}"));
        params(from, 7, None, Some(&folder)).unwrap();
        assert!(params(to, 8, None, None).unwrap() != expected);
        assert!(params(to, 8, Some(&folder), None).unwrap() == expected, "{from}, {to}");
    }
}

#[test]
fn loops_load_checkpoints_of_the_trainer() {
    let dir = tempfile::tempdir().unwrap();
    let of_trainer = dir.path().join("trainer");
    trainer(&format!("--mesh dp=2 --save {}", of_trainer.display())).unwrap().train().unwrap();
    let own = dir.path().join("own");
    let texts = run_on("fsdp=2", 0, |rank| {
        let built = build_llama(rank)?;
        let params = built.params();
        let mut optimizer = AdamW::new(rank, &built.units, AdamWOptions::default());
        let before = params[0].gather(rank);
        let mut checkpoints = LoopCheckpoints::open(rank, &own)?;
        let state = TrainingStateMut { params: &params, optimizer: &mut optimizer, average: None };
        let loaded = checkpoints.load_state_from(rank, &of_trainer, state)?;
        assert_eq!((loaded.step(), OptimizerState::steps(&optimizer)), (2, 2));
        assert_ne!(params[0].gather(rank), before);
        let state = TrainingState { params: &params, optimizer: &optimizer, average: None };
        checkpoints.save_state(rank, 3, &state, &())?;
        Ok(loaded.values::<u64>().unwrap_err().to_string())
    });
    assert!(
        texts.unwrap()[0].contains("step-00000002 was saved by the trainer, and has no values")
    );
    // The trainer does not continue a loop.
    let resumed = trainer(&format!("--mesh dp=2 --resume {}", own.display()));
    let text = resumed.map(drop).unwrap_err().to_string();
    assert!(text.contains("step-00000003 was saved by `save_state` in a training loop"), "{text}");
}

/// A step without an update: the optimizer continues from its own count.
#[test]
fn updates_are_counted_apart_from_steps() {
    let dir = tempfile::tempdir().unwrap();
    let counts = |mesh: &str, saves: bool| {
        run_on(mesh, 0, |rank| {
            let built = build_llama(rank)?;
            let params = built.params();
            let mut optimizer = AdamW::new(rank, &built.units, AdamWOptions::default());
            let mut checkpoints = LoopCheckpoints::open(rank, dir.path())?;
            if saves {
                optimizer.set_steps(3);
                let state = TrainingState { params: &params, optimizer: &optimizer, average: None };
                checkpoints.save_state(rank, 5, &state, &())?;
            } else {
                let state =
                    TrainingStateMut { params: &params, optimizer: &mut optimizer, average: None };
                assert_eq!(checkpoints.load_state(rank, state)?.unwrap().step(), 5);
            }
            Ok(optimizer.steps())
        })
    };
    assert_eq!(counts("fsdp=2", true).unwrap(), [3, 3]);
    assert_eq!(counts("tp=2", false).unwrap(), [3, 3]);
}
