//! Saves that fail on one rank.

use super::fixture::TinyLlama;
use crate::backend::cpu::CpuBackend;
use crate::checkpoint::faults::{Fault, with_fault};
use crate::checkpoint::{Checkpoint, CheckpointWriter, Keep, TrainState};
use crate::comm::{RankComms, Site, launch};
use crate::state_dict::TrainingState;
use crate::tensor::{Rank, Settings};
use crate::train::{Error, Result};

use super::save::save_to_folder;
use super::stage_tests::{StageState, adamw, train_state};

/// Most operations of a save.
const MAX_OPERATIONS: usize = 100;

/// Saves steps 2, 4 and 6 on two ranks, with a fault of `failing` in an operation of the second save. Returns true if
/// the fault occurred.
fn save_with_fault(failing: usize, index: usize) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let occurred = launch(&"fsdp=2".parse().unwrap(), |comms: RankComms| -> Result<bool> {
        let backend = Box::new(CpuBackend::new(1).unwrap());
        let rank = Rank::with_settings(comms, backend, Settings::new(7));
        let state = StageState::<TinyLlama>::new(&rank, &adamw(), false);
        let params = state.built.params();
        let state = TrainingState { params: &params, optimizer: &state.optimizer, average: None };
        let save = |step: u64| {
            let described = || TrainState { step, ..train_state("fsdp=2") };
            save_to_folder(
                &rank,
                &state,
                ("--save", dir.path()),
                (step, &described),
                Keep::default(),
            )
        };
        save(2)?;
        let own = if rank.index() == failing { index } else { usize::MAX };
        let (saved, occurred) = with_fault(Fault::Error(own), || save(4));
        if let Err(error) = &saved {
            let Error::Save { steps: 4, message, .. } = error else { panic!("{error}") };
            assert!(message.contains(&format!("fault in operation {index}")), "{message}");
        }
        // The failure is that of both ranks.
        let world = rank.comms().world();
        let mut failed = [f64::from(u8::from(saved.is_err())), f64::from(u8::from(occurred))];
        world.all_reduce_f64(&Site::new("test"), &mut failed)?;
        assert_eq!(failed[0], 2.0 * failed[1], "operation {index} of rank {failing}");
        if rank.index() == 0 {
            CheckpointWriter::abandon(dir.path());
            let left = Checkpoint::open(dir.path()).unwrap();
            assert!(left.skipped().is_empty());
            assert!([2, 4].contains(&left.manifest().state.step));
        }
        world.barrier(&Site::new("test"))?;
        save(6)?;
        Ok(failed[1] > 0.0)
    });
    assert_eq!(Checkpoint::open(dir.path()).unwrap().manifest().state.step, 6);
    occurred.unwrap_or_else(|error| panic!("{error}"))[0]
}

#[test]
fn all_ranks_skip_a_save_that_one_cannot_write() {
    for failing in [0, 1] {
        let operations = (0..MAX_OPERATIONS).take_while(|index| save_with_fault(failing, *index));
        let operations = operations.count();
        assert!((2..MAX_OPERATIONS).contains(&operations), "{operations} of rank {failing}");
    }
}
