//! The file of `--record`.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use crate::layout::AxisId;
use crate::os::{ClaimedFile, move_aside};
use crate::train::console::print_shared;
use crate::train::record::{Measurements, step_record, steps_to_record};
use crate::train::{Error, Result};
use meshwright_sim::calibrate::StepRecord;

use super::Plan;
use super::claimed_output::{claim, unwritable};

const FLAG: &str = "--record";

/// The file of `--record`. It is written under another name beside it, which is removed if the run fails.
pub struct RecordFile {
    path: PathBuf,
    partial: PathBuf,
    file: File,
    /// An earlier record, which is locked.
    _claimed: ClaimedFile,
}

impl RecordFile {
    /// Locks the file at `path`, and creates the one that becomes it.
    ///
    /// # Errors
    /// A run of too few steps, a file that is no record, and a folder that cannot be written to.
    pub fn claim(plan: &Plan, path: PathBuf) -> Result<RecordFile> {
        let (first, total) = (plan.first_step(), plan.config.steps);
        if steps_to_record(first, total).is_none() {
            let steps = total.saturating_sub(first);
            return Err(Error::Input(format!(
                "{FLAG}: the third step of a run is the first that can be recorded, but this one has {steps}; use \
                 --steps {} or more",
                first + 3
            )));
        }
        let is_special = |path: &Path| fs::metadata(path).is_ok_and(|data| !data.is_file());
        if is_special(&path) {
            let error = io::Error::other("it is no regular file; name a new one");
            return Err(unwritable(FLAG, &path)(error));
        }
        let (claimed, path) = claim(FLAG, path, is_record)?;
        let mut partial = path.clone().into_os_string();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let file = File::create(&partial).map_err(unwritable(FLAG, &path))?;
        Ok(RecordFile { path, partial, file, _claimed: claimed })
    }

    /// Writes the record of a complete run, and moves an earlier one aside. A run that has ended before its last steps
    /// has none, and a warning is printed.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write_record(&self, plan: &Plan, measured: Measurements) -> Result<()> {
        let measured = measured.into_inner().unwrap_or_else(PoisonError::into_inner);
        let Some(record) = step_record(plan, &measured) else {
            print_shared(&format!(
                "warning: {FLAG}: the run has ended before its last steps, which are recorded"
            ));
            return Ok(());
        };
        let mut text = serde_json::to_vec(&record).expect("a record has names as keys");
        text.push(b'\n');
        let write = || {
            (&self.file).write_all(&text)?;
            self.file.sync_all()?;
            let aside = move_aside(&self.path)?;
            fs::rename(&self.partial, &self.path).map(|()| aside)
        };
        if let Some(aside) = write().map_err(unwritable(FLAG, &self.path))? {
            print_shared(&format!("{FLAG}: the earlier record is now {}", aside.display()));
        }
        Ok(())
    }
}

impl Drop for RecordFile {
    fn drop(&mut self) {
        // It has another name if the record is written.
        let _ = fs::remove_file(&self.partial);
    }
}

fn is_record(file: &mut dyn Read) -> bool {
    let mut text = String::new();
    file.read_to_string(&mut text).is_ok() && StepRecord::is_record(&text)
}

impl Plan {
    /// Returns true for the ranks whose steps are recorded: the last one of each position along `pp`, which has the
    /// largest shards; if every rank is a process, that of rank 0, which writes the file.
    pub fn is_recorded(&self, rank: usize) -> bool {
        if self.config.record.is_none() {
            return false;
        }
        if self.machine.own_rank().is_some() {
            return rank == 0;
        }
        let mesh = self.config.mesh;
        let last = mesh.coordinates(mesh.world_size() - 1);
        let position = mesh.coordinates(rank).along(AxisId::Pp);
        mesh.rank_of(&last.with(AxisId::Pp, position)) == rank
    }
}
