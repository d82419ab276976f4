//! Files of rank 0 that take longer than the time limit of communication.

use std::time::{Duration, Instant};

use crate::backend::cpu::CpuBackend;
use crate::checkpoint::Checkpoint;
use crate::checkpoint::faults::delay_operations;
use crate::checkpoint::hf::{HfFolder, HfFormat};
use crate::comm::{CommError, LaunchOptions, RankComms, launch_with};
use crate::pipeline::tests::fixture::TinyLlama;
use crate::state_dict::{HfMapping, TrainingState, export_hf};
use crate::tensor::{Rank, Settings};

use super::save::save_to_folder;
use super::stage_tests::{NAMES, StageState, TinyConfig, adamw, train_state};

/// Time limit of communication.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Delay of each operation on files of rank 0. Saving and exporting each take more than five.
const DELAY: Duration = Duration::from_millis(500);

/// Runs `body` on two ranks, of which rank 0 has a slow file system, and returns the time.
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
        save_to_folder(rank, &state, dir.path(), (2, &described), None).unwrap();
    });
    assert!(time > TIMEOUT, "{time:?} is no test of the limit");
    Checkpoint::open(dir.path()).unwrap();
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
    HfFolder::open::<TinyConfig>(dir.path()).unwrap();
}
