//! Checkpoints of a training loop: continuation, other meshes, refusals, damage and a full disk.

use std::fs;
use std::path::Path;

use meshwright::Error;
use meshwright::checkpoint::faults::{Fault, with_fault};
use meshwright::comm::Site;
use meshwright::data::{Dataset, Order, TokenFile};
use meshwright::optim::{AdamW, AdamWOptions, Ema, Sgd, SgdOptions};
use meshwright::prelude::*;
use meshwright::train::{LoopCheckpoints, TrainingState, TrainingStateMut};

dims! { Batch @ data, Hidden, Ffn, Classes }

const BATCH: usize = 8;

#[model]
struct Mlp {
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    dropout: Dropout,
    #[sharded(tp = "row")]
    down: Linear<Ffn, Classes>,
}

#[forward]
impl Mlp {
    fn forward(&self, x: &Tensor<(Batch, Hidden)>) -> Tensor<(Batch, Classes)> {
        self.down.forward(&self.dropout.forward(&self.up.forward(x).gelu()))
    }
}

fn sizes() -> Sizes {
    let mut sizes = Sizes::new().with(Hidden, 8).with(Ffn, 16).with(Classes, 4);
    sizes.dropout = 0.2;
    sizes
}

/// The end of a loop on rank 0.
#[derive(Debug, PartialEq)]
struct Ended {
    losses: Vec<f64>,
    params: Vec<Vec<f32>>,
    average: Vec<Vec<f32>>,
}

/// A loop with a moving average, whose values are its losses. It continues from `dir`, and saves every second step.
fn train(mesh: &str, dir: &Path, steps: u64) -> Result<Ended> {
    let ended = run_on(mesh, 7, |rank| {
        let built = build::<Mlp>(rank, &sizes())?;
        let params = built.params();
        let mut optimizer = AdamW::new(rank, &built.units, AdamWOptions::default());
        let mut average = Ema::new(rank, &built.units, 0.7);
        let mut checkpoints = LoopCheckpoints::open(rank, dir)?.keep(2);
        let state = TrainingStateMut {
            params: &params,
            optimizer: &mut optimizer,
            average: Some(&mut average),
        };
        let (first, mut losses) = match checkpoints.load_state(rank, state)? {
            Some(loaded) => (loaded.step(), loaded.values::<Vec<f64>>()?),
            None => (0, Vec::new()),
        };
        for step in first..steps {
            rank.set_step(step);
            let input = |at: &[usize]| ((step as usize * 31 + at[0] * 8 + at[1]) % 17) as f32 * 0.1;
            let y = built.model.forward(&Tensor::from_fn(rank, &[BATCH, 8], input));
            let loss = Loss::mean_of(&(&y * &y));
            losses.push(loss.reduce().value());
            let gradients = loss.backward().reduce();
            optimizer.step_and_average(0.01, gradients, &mut average);
            if (step + 1) % 2 == 0 {
                let state = TrainingState {
                    params: &params,
                    optimizer: &optimizer,
                    average: Some(&average),
                };
                checkpoints.save_state(rank, step + 1, &state, &losses)?;
            }
        }
        let gather = || params.iter().map(|param| param.gather(rank)).collect();
        Ok(Ended { losses, params: gather(), average: average.with_average(gather) })
    });
    Ok(ended?.swap_remove(0))
}

fn bits(values: &[Vec<f32>]) -> Vec<u32> {
    values.iter().flatten().map(|value| value.to_bits()).collect()
}

fn error_of<T>(result: Result<T>) -> String {
    result.map(drop).unwrap_err().to_string()
}

#[test]
fn a_continued_loop_is_bit_equal() {
    for mesh in ["1", "fsdp=2", "dp=2,tp=2"] {
        let dir = tempfile::tempdir().unwrap();
        let [whole, parts] = ["whole", "parts"].map(|name| dir.path().join(name));
        let expected = train(mesh, &whole, 6).unwrap();
        train(mesh, &parts, 4).unwrap();
        // Nothing of the first process is left but its folder.
        let ended = train(mesh, &parts, 6).unwrap();
        assert_eq!(ended.losses, expected.losses, "{mesh}");
        assert_eq!(bits(&ended.params), bits(&expected.params), "{mesh}");
        assert_eq!(bits(&ended.average), bits(&expected.average), "{mesh}");
        assert_ne!(bits(&ended.average), bits(&ended.params));
        // `keep` counts those that are continued.
        let kept = |step: u64| parts.join(format!("step-{step:08}")).is_dir();
        assert_eq!([2, 4, 6].map(kept), [false, true, true]);
        assert!(parts.join("latest").is_symlink());
    }
}

#[test]
fn a_loop_continues_on_another_mesh() {
    let dir = tempfile::tempdir().unwrap();
    let expected = train("1", &dir.path().join("alone"), 6).unwrap();
    for (first, then) in [("fsdp=2", "dp=2"), ("fsdp=2", "tp=2"), ("dp=2,tp=2", "1")] {
        let folder = dir.path().join(format!("{first} {then}"));
        train(first, &folder, 2).unwrap();
        let ended = train(then, &folder, 6).unwrap();
        let values = |ended: &Ended| -> Vec<f32> {
            ended.params.iter().chain(&ended.average).flatten().copied().collect()
        };
        for (value, expected) in values(&ended).iter().zip(values(&expected)) {
            assert!((value - expected).abs() < 1e-6, "{first}, {then}: {value}, alone {expected}");
        }
        for (loss, expected) in ended.losses.iter().zip(&expected.losses) {
            assert!((loss - expected).abs() < 1e-6, "{first}, {then}: {loss}, alone {expected}");
        }
    }
}

#[test]
fn damaged_checkpoints_are_skipped_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let expected = train("fsdp=2", &dir.path().join("whole"), 6).unwrap();
    let folder = dir.path().join("out");
    train("fsdp=2", &folder, 4).unwrap();
    let damage = |step: u64| {
        let path = folder.join(format!("step-{step:08}/rank-00001.safetensors"));
        let mut bytes = fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(path, bytes).unwrap();
    };
    damage(4);
    // From step 2.
    assert_eq!(bits(&train("fsdp=2", &folder, 6).unwrap().params), bits(&expected.params));
    [4, 6].into_iter().for_each(damage);
    let text = error_of(train("fsdp=2", &folder, 8));
    assert!(text.starts_with("load_state: no usable checkpoint in"), "{text}");
    assert!(text.contains("rank-00001.safetensors") && text.contains("to begin again"), "{text}");
}

/// Runs `body` with a state that was saved after two steps, and one to load into.
fn with_state<T: Send>(
    mesh: &str,
    body: impl Fn(&Rank, TrainingStateMut<'_>) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    run_on(mesh, 7, |rank| {
        let built = build::<Mlp>(rank, &sizes())?;
        let params = built.params();
        let mut optimizer = AdamW::new(rank, &built.units, AdamWOptions::default());
        body(rank, TrainingStateMut { params: &params, optimizer: &mut optimizer, average: None })
    })
}

#[test]
fn what_does_not_fit_is_refused_on_all_ranks() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    train("dp=2", &out, 2).unwrap();
    // Both ranks go on with the error.
    let refusal = |load: &(dyn Fn(&Rank) -> Result<()> + Sync)| -> String {
        let texts = run_on("dp=2", 7, |rank| {
            let text = error_of(load(rank));
            rank.comms().world().barrier(&Site::new("test"))?;
            Ok(text)
        });
        let texts = texts.unwrap();
        assert_eq!(texts[0], texts[1]);
        texts[0].clone()
    };
    let text = refusal(&|rank| {
        let built = build::<Mlp>(rank, &sizes().with(Ffn, 32))?;
        let mut optimizer = AdamW::new(rank, &built.units, AdamWOptions::default());
        let params = built.params();
        let state = TrainingStateMut { params: &params, optimizer: &mut optimizer, average: None };
        LoopCheckpoints::open(rank, &out)?.load_state(rank, state).map(drop)
    });
    assert!(text.starts_with("load_state: the tensors of") && text.contains("[8, 16]"), "{text}");
    let text = refusal(&|rank| {
        let built = build::<Mlp>(rank, &sizes())?;
        let mut optimizer = Sgd::new(rank, &built.units, SgdOptions::default());
        let params = built.params();
        let state = TrainingStateMut { params: &params, optimizer: &mut optimizer, average: None };
        LoopCheckpoints::open(rank, &out)?.load_state(rank, state).map(drop)
    });
    assert!(
        text.contains("by another optimizer, adamw, which keeps the states [adam_m, adam_v] of"),
        "{text}"
    );
    assert!(text.contains("; sgd with momentum keeps [sgd_momentum]; create the"), "{text}");

    let file = dir.path().join("file");
    fs::write(&file, "text").unwrap();
    let text = refusal(&|rank| LoopCheckpoints::open(rank, &file).map(drop));
    assert!(text.starts_with("LoopCheckpoints::open: ") && text.contains("file"), "{text}");
    let text = refusal(&|rank| {
        let built = build::<Mlp>(rank, &sizes())?;
        let mut optimizer = AdamW::new(rank, &built.units, AdamWOptions::default());
        let params = built.params();
        let state = TrainingStateMut { params: &params, optimizer: &mut optimizer, average: None };
        let mut checkpoints = LoopCheckpoints::open(rank, dir.path().join("new"))?;
        checkpoints.load_state_from(rank, dir.path(), state).map(drop)
    });
    assert!(text.contains("the folder holds no step-* folder"), "{text}");
}

#[test]
fn values_of_another_type_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    train("1", dir.path(), 2).unwrap();
    let text = error_of(with_state("1", |rank, state| {
        let loaded = LoopCheckpoints::open(rank, dir.path())?.load_state(rank, state)?;
        loaded.unwrap().values::<u64>()
    }));
    let part = "step-00000002 are none of `u64`: invalid type: sequence, expected u64";
    assert!(text.contains(part), "{text}");
}

/// A folder of one loop at a time, also in one process.
#[test]
fn a_folder_has_one_loop() {
    let dir = tempfile::tempdir().unwrap();
    let text = error_of(run_on("dp=2", 0, |rank| {
        let first = LoopCheckpoints::open(rank, dir.path())?;
        let second = LoopCheckpoints::open(rank, dir.path()).map(drop);
        drop(first);
        second
    }));
    assert!(text.starts_with("LoopCheckpoints::open: another run saves in"), "{text}");
}

#[test]
fn ranks_that_save_other_steps_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let save = |step_of: &(dyn Fn(&Rank) -> u64 + Sync)| {
        with_state("dp=2", |rank, state| {
            let mut checkpoints = LoopCheckpoints::open(rank, dir.path())?;
            let TrainingStateMut { params, optimizer, .. } = state;
            let state = TrainingState { params, optimizer, average: None };
            let saved = checkpoints.save_state(rank, step_of(rank), &state, &());
            rank.comms().world().barrier(&Site::new("test"))?;
            saved
        })
    };
    let text = error_of(save(&|rank| 3 + rank.index() as u64));
    let expected = "save_state: rank 0 saves the state after step 3, and rank 1 that after step 4";
    assert!(text.starts_with(expected), "{text}");
    assert!(!dir.path().join("latest").exists());
    save(&|_| 3).unwrap();
    // Nothing incomplete is left.
    let mut names: Vec<_> =
        fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["latest", "step-00000003"]);
}

/// The system refuses any one operation of the second save, on one of two ranks.
#[test]
fn a_full_disk_leaves_the_checkpoint_before() {
    /// Most operations of a save.
    const MOST: usize = 100;
    for failing in [0, 1] {
        for index in 0.. {
            assert!(index < MOST);
            let dir = tempfile::tempdir().unwrap();
            let failed = with_state("fsdp=2", |rank, state| {
                let mut checkpoints = LoopCheckpoints::open(rank, dir.path())?;
                let TrainingStateMut { params, optimizer, .. } = state;
                let state = TrainingState { params, optimizer, average: None };
                let mut save = |step| checkpoints.save_state(rank, step, &state, &"values");
                save(2)?;
                let own = if rank.index() == failing { index } else { usize::MAX };
                let (saved, _) = with_fault(Fault::Error(own), || save(4));
                let failed = match saved {
                    Ok(()) => false,
                    Err(error @ Error::Save { steps: 4, .. }) => {
                        let text = error.to_string();
                        assert!(text.starts_with("save_state: "), "{text}");
                        assert!(text.contains(&format!("fault in operation {index}")), "{text}");
                        true
                    }
                    Err(error) => panic!("{error}"),
                };
                save(6)?;
                Ok(failed)
            });
            let failed = failed.unwrap();
            assert_eq!(failed[0], failed[1], "operation {index} of rank {failing}");
            for step in [2, 6] {
                assert!(dir.path().join(format!("step-{step:08}/manifest.json")).is_file());
            }
            if !failed[0] {
                assert!(index > 2, "{index}");
                break;
            }
        }
    }
}

#[test]
fn infinite_parameters_are_not_saved() {
    let dir = tempfile::tempdir().unwrap();
    let saved = with_state("fsdp=2", |rank, state| {
        let mut checkpoints = LoopCheckpoints::open(rank, dir.path())?;
        let TrainingStateMut { params, optimizer, .. } = state;
        params[0].write(&vec![f32::NAN; params[0].local_len()]);
        let state = TrainingState { params, optimizer, average: None };
        checkpoints.save_state(rank, 1, &state, &())
    });
    let text = error_of(saved);
    assert!(
        text.contains("elements of `up.weight` are infinite or NaN; the state is not"),
        "{text}"
    );
    assert!(!dir.path().join("latest").exists());
}

fn dataset(text: &str, batch: usize) -> Dataset {
    let file = TokenFile::from_text(text.repeat(40).into_bytes(), 256, "text").unwrap();
    Dataset::new(file, 4, batch, Order::Shuffled, 1).unwrap()
}

/// Compares data and settings of samples like the trainer.
#[test]
fn a_loop_continues_with_the_same_samples() {
    let dir = tempfile::tempdir().unwrap();
    let saved = dataset("some text", 8);
    let run = |dataset: Option<&Dataset>, saves: bool| {
        with_state("dp=2", |rank, state| {
            let mut checkpoints = LoopCheckpoints::open(rank, dir.path())?;
            if let Some(dataset) = dataset {
                checkpoints = checkpoints.with_data(dataset);
            }
            if !saves {
                return checkpoints.load_state(rank, state).map(drop);
            }
            let TrainingStateMut { params, optimizer, .. } = state;
            let state = TrainingState { params, optimizer, average: None };
            checkpoints.save_state(rank, 2, &state, &())
        })
    };
    run(Some(&saved), true).unwrap();
    run(Some(&dataset("some text", 8)), false).unwrap();
    run(None, false).unwrap();
    let text = error_of(run(Some(&dataset("some text", 4)), false));
    assert!(text.contains("\n  - batch: 4, but 8 was saved"), "{text}");
    let text = error_of(run(Some(&dataset("Some text", 8)), false));
    assert!(text.contains("\n  - data: text with 360 tokens differs from the data"), "{text}");
    run(None, true).unwrap();
    let text = error_of(run(Some(&saved), false));
    assert!(text.contains("was saved without `with_data`"), "{text}");
}
