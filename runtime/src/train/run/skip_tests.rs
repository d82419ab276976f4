//! Steps whose updates are left out.

use std::fs;
use std::path::Path;

use crate::checkpoint::Checkpoint;
use crate::models::llama::Llama;
use crate::tensor::Rank;
use crate::train::{Config, Error, Result, StepObserver, StepReport, Trainer};

const SMALL: &str = "t --layers 2 --hidden 16 --heads 2 --ffn 16 --seq 8 --batch 4 --sample-tokens 0 --lr-schedule \
                     cosine --ema 0.5 --on-nan";

/// Makes a parameter NaN in some steps, and restores it after them.
struct Poison {
    steps: &'static [u64],
    values: Vec<f32>,
}

/// The norm before the head, which the last stage has.
const PATH: &str = "norm.weight";

impl Poison {
    /// Replaces the values of the parameter, on the ranks that have it.
    fn replace(rank: &Rank, change: impl FnOnce(Vec<f32>) -> Vec<f32>) {
        let params = rank.units().iter().flat_map(|unit| unit.params()).collect::<Vec<_>>();
        let param =
            params.iter().find(|param| param.path() == PATH).filter(|param| param.is_owned());
        if let Some(param) = param {
            param.write(&change(param.to_local_vec()));
        }
    }
}

impl StepObserver for Poison {
    fn begin(&mut self, rank: &Rank, step: u64) {
        if self.steps.contains(&step) {
            Poison::replace(rank, |values| {
                let poison = vec![f32::NAN; values.len()];
                self.values = values;
                poison
            });
        }
    }

    fn end(&mut self, report: &StepReport<'_>) -> Result<()> {
        let before = self.steps.iter().filter(|step| **step <= report.step).count() as u64;
        assert_eq!(report.skipped, Some(before));
        let is_poisoned = self.steps.contains(&report.step);
        assert_eq!(report.loss.is_nan(), is_poisoned);
        if is_poisoned {
            Poison::replace(report.rank, |_| self.values.clone());
        }
        Ok(())
    }
}

/// Trains in `dir`, with NaN in some steps.
fn train(dir: &Path, flags: &str, steps: &'static [u64]) -> Result<()> {
    let config = Config::parse(format!("{SMALL} {flags}").split_whitespace()).unwrap();
    let mut config = config;
    config.save.as_mut().unwrap().dir = dir.to_owned();
    let poison = move |_: &Rank| Ok(Poison { steps, values: Vec::new() });
    Trainer::<Llama>::new(config)?.on_step(poison).train().map(drop)
}

/// Returns the files of tensors of a step, and its number of steps that were left out.
fn saved(dir: &Path, step: u64) -> (Vec<Vec<u8>>, u64) {
    let folder = dir.join(format!("step-{step:08}"));
    let skipped = Checkpoint::open(&folder).unwrap().manifest().state.skipped;
    let mut files: Vec<_> =
        fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|ext| ext == "safetensors"));
    files.sort();
    assert!(!files.is_empty());
    (files.iter().map(|file| fs::read(file).unwrap()).collect(), skipped)
}

/// Parameters, optimizer state and moving average stay as before the step, on every mesh; a resumed run goes on with as
/// many updates as the optimizer has applied, and counts on.
#[test]
fn an_update_is_left_out() {
    for mesh in ["1", "dp=2", "fsdp=2", "tp=2", "pp=2 --micro-batches 2"] {
        let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let [whole, resumed] = dirs.each_ref().map(|dir| dir.path());
        let line = format!("skip=2 --mesh {mesh} --steps 6 --save-every 1 --save out");
        train(whole, &line, &[1, 3, 5]).unwrap();
        // Without an update, the tensors have not changed since the step before.
        for (step, skipped) in [(3, 2), (5, 3)] {
            let (before, after) = (saved(whole, step - 1), saved(whole, step));
            assert_eq!((&before.0, before.1 + 1), (&after.0, skipped), "{mesh}, step {step}");
            assert_eq!(after.1, skipped, "{mesh}");
        }
        assert_ne!(saved(whole, 4).0, saved(whole, 3).0, "{mesh}");
        let from = whole.join("step-00000003");
        train(resumed, &format!("{line} --resume {}", from.display()), &[1, 3, 5]).unwrap();
        assert_eq!(saved(resumed, 6), saved(whole, 6), "{mesh}");
    }
}

/// Steps with an update between others begin a new count.
#[test]
fn too_many_steps_in_a_row_end_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let line = "skip=2 --mesh dp=2 --steps 9 --save-every 1 --save out";
    let error = train(dir.path(), line, &[1, 3, 4, 6]).unwrap_err();
    let Error::Diverged(text) = &error else { panic!("{error}") };
    assert!(
        text.starts_with(
            "step 4: the loss is NaN on ranks 0, 1; training stopped, the state before"
        ),
        "{text}"
    );
    assert!(
        text.ends_with("in a row: 2, which --on-nan skip=2 takes for the end of the run"),
        "{text}"
    );
    assert_eq!(saved(dir.path(), 3).1, 2);
    let error = train(dir.path(), "stop --mesh dp=2 --steps 9 --save out", &[2]);
    assert!(error.is_err());
}
