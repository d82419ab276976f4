//! Files of rank 0 that take longer than the time limit of communication.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use super::fixture::TinyLlama;
use crate::backend::cpu::CpuBackend;
use crate::checkpoint::faults::delay_operations;
use crate::checkpoint::hf::{HfFolder, HfFormat};
use crate::checkpoint::{Checkpoint, Keep};
use crate::comm::{CommError, LaunchOptions, RankComms, Site, launch_with};
use crate::data::RowSource;
use crate::models::llama::Llama;
use crate::state_dict::TrainingState;
use crate::state_dict::{HfMapping, export_hf};
use crate::tensor::{Rank, Settings};
use crate::train::{Config, Error, Result, StepObserver, StepReport, Trainer};

use super::background_save::BackgroundSave;
use super::save::{begin_checkpoint, save_to_folder};
use super::stage_tests::{NAMES, StageState, TinyConfig, adamw, train_state};

/// Time limit of communication.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Delay of each operation on files of rank 0. Saving and exporting each take more than five.
const DELAY: Duration = Duration::from_millis(500);

/// Runs `body` on two ranks, and returns the time. Rank 0 has a slow file system.
fn with_slow_rank_0(body: impl Fn(&Rank, StageState<TinyLlama>) + Sync) -> Duration {
    let start = Instant::now();
    let options = LaunchOptions { timeout: TIMEOUT, ..LaunchOptions::default() };
    let run = launch_with(&options, &"dp=2".parse().unwrap(), |comms: RankComms| {
        if comms.rank() == 0 {
            delay_operations(DELAY);
        }
        let backend = Box::new(CpuBackend::new(1).unwrap());
        let rank = Rank::with_settings(comms, backend, Settings::new(7));
        body(&rank, StageState::new(&rank, &adamw(), false));
        Ok::<_, CommError>(())
    });
    run.unwrap_or_else(|error| panic!("{error}"));
    start.elapsed()
}

#[test]
fn ranks_wait_for_a_slow_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let time = with_slow_rank_0(|rank, state| {
        let params = state.built.params();
        let optimizer = &state.optimizer;
        let state = TrainingState { params: &params, optimizer, average: None };
        let described = || train_state("dp=2");
        save_to_folder(rank, &state, ("--save", dir.path()), (2, &described), Keep::default())
            .unwrap();
    });
    assert!(time > TIMEOUT, "{time:?} is no test of the limit");
    Checkpoint::open(dir.path()).unwrap();
}

/// Ranks do not wait for files between steps, and the copy does not change.
#[test]
fn ranks_train_while_a_slow_checkpoint_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let saved = tempfile::tempdir().unwrap();
    with_slow_rank_0(|rank, state| {
        let params = state.built.params();
        let optimizer = &state.optimizer;
        let training = TrainingState { params: &params, optimizer, average: None };
        let described = || train_state("dp=2");
        save_to_folder(rank, &training, ("--save", saved.path()), (2, &described), Keep::default())
            .unwrap();
        let mut save = BackgroundSave::default();
        save.start(rank, &training, dir.path(), (2, &described), Keep::default()).unwrap();
        for param in &params {
            param.write(&vec![f32::NAN; param.local_len()]);
        }
        for _ in 0..10 {
            rank.comms().world().barrier(&Site::new("training")).unwrap();
        }
        assert!(!dir.path().join("latest").exists());
        assert_eq!(save.finish(rank).unwrap().map(|(steps, _)| steps), Some(2));
        assert!(dir.path().join("latest").exists());
        assert_eq!(save.finish(rank).unwrap(), None);
    });
    let [waited, copied] = [&saved, &dir].map(|dir| {
        let files = Checkpoint::open(dir.path()).unwrap().manifest().files.clone();
        files.into_iter().map(|file| file.xxh3).collect::<Vec<_>>()
    });
    assert_eq!(waited, copied);
}

/// A run that fails does not wait for the file of a rank that never comes.
#[test]
fn a_checkpoint_of_a_run_that_fails_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let options = LaunchOptions { timeout: TIMEOUT, ..LaunchOptions::default() };
    let run = launch_with(&options, &"dp=2".parse().unwrap(), |comms: RankComms| {
        let is_first = comms.rank() == 0;
        let backend = Box::new(CpuBackend::new(1).unwrap());
        let rank = Rank::with_settings(comms, backend, Settings::new(7));
        let state = StageState::<TinyLlama>::new(&rank, &adamw(), false);
        let params = state.built.params();
        let optimizer = &state.optimizer;
        let state = TrainingState { params: &params, optimizer, average: None };
        if is_first {
            let mut save = BackgroundSave::default();
            let described = || train_state("dp=2");
            save.start(&rank, &state, dir.path(), (2, &described), Keep::default())?;
            save.finish(&rank).map(drop)
        } else {
            // The call of `start`, without a file.
            begin_checkpoint(&rank, ("--save", dir.path()), 2)?;
            Err(Error::Input("the rank fails".into()))
        }
    });
    let text = run.map(drop).unwrap_err().to_string();
    assert!(text.contains("the rank fails"), "{text}");
    assert!(!dir.path().join("latest").exists());
}

#[test]
fn ranks_wait_for_a_slow_export() {
    let dir = tempfile::tempdir().unwrap();
    let time = with_slow_rank_0(|rank, state| {
        let params = state.built.params();
        let shapes = HfMapping::new(NAMES, &params).unwrap().shapes();
        let format = HfFormat::new(&TinyConfig, shapes);
        export_hf(rank, dir.path(), &format, NAMES, &params).unwrap();
        // It returns on all ranks when the files are complete.
        assert!(dir.path().join("model.safetensors").is_file());
    });
    assert!(time > TIMEOUT, "{time:?} is no test of the limit");
    HfFolder::open::<TinyConfig>(dir.path(), &[]).unwrap();
}

/// Makes the loss NaN in a step, on a slow file system.
struct NanStep(u64);

impl StepObserver for NanStep {
    fn begin(&mut self, rank: &Rank, step: u64) {
        delay_operations(DELAY);
        if step == self.0 {
            let units = rank.units();
            let params =
                units.iter().flat_map(|unit| unit.params()).filter(|param| param.is_owned());
            params.for_each(|param| param.write(&vec![f32::NAN; param.local_len()]));
        }
    }

    fn end(&mut self, _: &StepReport<'_>) -> Result<()> {
        Ok(())
    }
}

/// Replicas that have parted have no state to save, but the one before is being written.
#[test]
fn the_checkpoint_before_a_failed_step_of_replicas_is_completed() {
    let dir = tempfile::tempdir().unwrap();
    let line = "t --layers 1 --hidden 16 --heads 2 --ffn 16 --seq 8 --batch 4 --sample-tokens 0 --mesh dp=2 --steps 9 \
                --local-steps 3 --save-every 3 --save-async --save out";
    let mut config = Config::parse(line.split_whitespace()).unwrap();
    config.save.as_mut().unwrap().dir = dir.path().to_owned();
    let trainer = Trainer::<Llama>::new(config).unwrap();
    let error = trainer.on_step(|_| Ok(NanStep(5))).train().map(drop).unwrap_err();
    let newest = format!("{} has the state after step 3", dir.path().display());
    assert!(error.to_string().contains(&newest), "{error}");
    assert_eq!(Checkpoint::open(dir.path()).unwrap().manifest().state.step, 3);
}

/// Rows that the first of two ranks cannot read from the third step on.
struct StuckRows(Mutex<Receiver<()>>);

impl RowSource for StuckRows {
    fn name(&self) -> &str {
        "stuck"
    }

    fn rows(&self) -> u64 {
        1000
    }

    fn fingerprint(&self) -> String {
        String::new()
    }

    fn write_row(
        &self,
        row: u64,
        tokens: &mut [u32],
        targets: &mut [u32],
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        if row >= 8 && row % 4 < 2 {
            let _ = self.0.lock().unwrap().recv_timeout(STUCK);
        }
        tokens.fill(1);
        targets.fill(1);
        Ok(())
    }
}

/// Time that rows take which are not awaited.
const STUCK: Duration = Duration::from_secs(120);

/// Fails on a rank.
struct Failing(bool);

impl StepObserver for Failing {
    fn end(&mut self, _: &StepReport<'_>) -> Result<()> {
        if self.0 { Err(Error::of_observer("the tracker is away")) } else { Ok(()) }
    }
}

#[test]
fn a_rank_that_waits_for_data_notices_a_failure() {
    let line = "t --layers 1 --hidden 16 --heads 2 --ffn 16 --seq 8 --batch 4 --sample-tokens 0 --mesh dp=2 --steps 9";
    let config = Config::parse(line.split_whitespace()).unwrap();
    let (sender, receiver) = channel();
    let config = config.with_rows(StuckRows(Mutex::new(receiver)));
    let start = Instant::now();
    let trainer = Trainer::<Llama>::new(config).unwrap();
    let ended = trainer.on_step(|rank| Ok(Failing(rank.index() == 1))).train().map(drop);
    assert!(start.elapsed() < STUCK, "{:?}", start.elapsed());
    assert_eq!(ended.unwrap_err().to_string(), "observer: the tracker is away");
    drop(sender);
}
