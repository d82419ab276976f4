//! The runs that have led to a checkpoint. They distinguish checkpoints of different branches.
//!
//! A run that is resumed from a checkpoint before the last one begins a branch: the later checkpoints of the first run
//! stay in the folder, but do not lead to the checkpoints of the new one.

use std::fs;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

/// The runs that have led to a checkpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunHistory {
    /// Identifier of the run that has saved the checkpoint; empty in checkpoints that were saved without it.
    pub run: String,
    /// The runs before, the first one first; each was resumed by the next one.
    pub resumed: Vec<ResumedRun>,
}

/// A run, and the checkpoint from which another one was resumed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResumedRun {
    /// Identifier of the run.
    pub run: String,
    /// Completed steps in the checkpoint.
    pub step: u64,
}

impl RunHistory {
    /// Begins the history of a run of this process: a new one, or one that resumes the checkpoint of `resumed` after a
    /// number of steps. No other run has the same identifier.
    pub fn begin(resumed: Option<(&RunHistory, u64)>) -> RunHistory {
        let before = resumed.map(|(history, step)| {
            let last = ResumedRun { run: history.run.clone(), step };
            history.resumed.iter().cloned().chain([last]).collect()
        });
        RunHistory { run: unique_name(), resumed: before.unwrap_or_default() }
    }

    /// Returns true if the checkpoint of `other` after `step` steps is one of this history: saved by the same run, or
    /// by one of the runs before until it was resumed.
    pub fn contains(&self, other: &RunHistory, step: u64) -> bool {
        let is_before = |resumed: &ResumedRun| resumed.run == other.run && step <= resumed.step;
        self.run == other.run || self.resumed.iter().any(is_before)
    }
}

/// Returns a name of the process and its start that no other one has.
pub(super) fn unique_name() -> String {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    // The number of the machine's boot, if it is known: processes of several machines may share a folder.
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let text = format!("{boot} {} {}", std::process::id(), since_epoch.as_nanos());
    format!("{:016x}", xxh3_64(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_share_the_checkpoints_before_them() {
        let first = RunHistory::begin(None);
        let branch = RunHistory::begin(Some((&first, 2)));
        let later = RunHistory::begin(Some((&branch, 3)));
        let other = RunHistory::begin(None);
        for (history, of, step, expected) in [
            (&first, &first, 6, true),
            (&branch, &first, 2, true),
            (&branch, &first, 4, false),
            (&later, &first, 1, true),
            (&later, &first, 3, false),
            (&later, &branch, 3, true),
            (&later, &branch, 4, false),
            (&first, &branch, 3, false),
            (&first, &other, 1, false),
        ] {
            assert_eq!(history.contains(of, step), expected, "{history:?}, {of:?}, {step}");
        }
    }

    /// Checkpoints that were saved without a history.
    #[test]
    fn a_resumed_run_without_history_is_known() {
        let branch = RunHistory::begin(Some((&RunHistory::default(), 4)));
        assert!(branch.contains(&RunHistory::default(), 4));
        assert!(!branch.contains(&RunHistory::default(), 5));
        assert!(!RunHistory::begin(None).contains(&RunHistory::default(), 1));
    }
}
