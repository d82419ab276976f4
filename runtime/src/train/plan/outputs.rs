//! Files and folders that the run writes, checked before any work could be lost.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};

use crate::checkpoint::hf::{ExportLock, HfExport};
use crate::checkpoint::{Checkpoint, CheckpointError, CheckpointFolder};
use crate::os::open_output;
use crate::trace::Tracer;
use crate::train::config::Config;
use crate::train::console::print_line;
use crate::train::report::check_continued;
use crate::train::{Error, Result};

use super::Plan;
use super::output_check::check_outputs;

/// The outputs that a run keeps open.
#[derive(Default)]
pub struct PreparedOutputs {
    pub trace: Option<TraceFile>,
    /// The folder of `--save`, if this process prepares it for the others. Locked to the end of the run.
    pub checkpoints: Option<CheckpointFolder>,
    /// The lock of the folder of `--export-hf`, in the process of rank 0.
    _export: Option<ExportLock>,
}

/// The open file of `--trace`, which is written when the run ends.
pub struct TraceFile {
    path: PathBuf,
    file: File,
}

impl TraceFile {
    fn create(path: PathBuf) -> Result<TraceFile> {
        let opened = open_output(&path, OpenOptions::new().create(true).write(true).truncate(true));
        match opened {
            Ok(file) => Ok(TraceFile { path, file }),
            Err(error) => Err(unwritable("--trace", &path)(error)),
        }
    }

    /// Writes all events of a run.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write_events(&self, tracer: &Tracer) -> Result<()> {
        tracer.write_to(&self.file).map_err(unwritable("--trace", &self.path))
    }
}

/// Most steps that a warning lists.
const MAX_LISTED: usize = 8;

/// Lists steps in order: `steps 4, 6 and 8`.
fn describe_steps(steps: &[u64]) -> String {
    let text = |steps: &[u64]| steps.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    match steps {
        [] => "none".to_owned(),
        [only] => format!("step {only}"),
        [first @ .., last] if steps.len() <= MAX_LISTED => {
            format!("steps {} and {last}", text(first))
        }
        [first, .., last] => format!("{} from step {first} to {last}", steps.len()),
    }
}

fn unwritable(flag: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    move |source| Error::Output { flag, path: path.to_owned(), source }
}

impl Plan {
    /// Creates or opens every output but the metrics, and refuses outputs that are also inputs.
    pub fn prepare_outputs(&self) -> Result<PreparedOutputs> {
        let Config { metrics, stage_times, .. } = &self.config;
        let checkpoint = self.resume.as_ref();
        check_outputs(&self.config, checkpoint.map(Checkpoint::folder))?;
        if let (Some(_), Some(path)) = (checkpoint, metrics) {
            check_continued(path)?;
        }
        // First, as a run that is refused because another one saves there must not empty the other's files.
        let checkpoints = self.prepare_save().map_err(Error::of_flag("--save"))?;
        let export = self.prepare_export().map_err(Error::of_flag("--export-hf"))?;
        let trace = self.trace_path().map(TraceFile::create).transpose()?;
        if let Some(path) = stage_times {
            // The times of an earlier run stay until those of this one are known: `--stages` may have read them.
            let opened = open_output(path, OpenOptions::new().create(true).append(true));
            opened.map_err(unwritable("--stage-times", path))?;
        }
        Ok(PreparedOutputs { trace, checkpoints, _export: export })
    }

    /// Checks the folder of `--save`. Of several processes, that of rank 0 prepares it.
    fn prepare_save(&self) -> std::result::Result<Option<CheckpointFolder>, CheckpointError> {
        let Some(save) = &self.config.save else { return Ok(None) };
        if let Some(rank) = self.machine.own_rank().filter(|rank| *rank > 0) {
            CheckpointFolder::check_writable(&save.dir, rank)?;
            return Ok(None);
        }
        let folder = CheckpointFolder::prepare(&save.dir)?;
        self.dataset.prepare_position();
        let (others, dir) = (folder.other_steps(&self.history)?, save.dir.display());
        if let Some(newest) = others.last() {
            let which = if self.resumes_from(&save.dir) {
                format!(
                    "checkpoints that do not lead to this run, which is resumed from step {}: {}",
                    self.first_step(),
                    describe_steps(&others)
                )
            } else {
                format!("checkpoints of another run, the last one of step {newest}")
            };
            let advice = if self.resumes_from(&save.dir) {
                "remove them if they are not needed".to_owned()
            } else {
                format!("--resume {dir} continues that run")
            };
            print_line(&format!(
                "warning: --save: {dir} holds {which}; those of equal steps will be replaced, and the others are kept, \
                 without being counted by --keep; {advice}"
            ));
        }
        Ok(Some(folder))
    }

    /// Checks the folder of `--export-hf`. Of several processes, that of rank 0 locks it.
    fn prepare_export(&self) -> std::result::Result<Option<ExportLock>, CheckpointError> {
        let Some(folder) = &self.config.export_hf else { return Ok(None) };
        HfExport::prepare(folder)?;
        let is_first = self.machine.own_rank().is_none_or(|rank| rank == 0);
        if is_first { HfExport::lock(folder).map(Some) } else { Ok(None) }
    }

    /// Returns true if the run resumes from a checkpoint in `dir`.
    fn resumes_from(&self, dir: &Path) -> bool {
        let real = |path: &Path| path.canonicalize().ok();
        let resumed = self.resume.as_ref().and_then(|checkpoint| real(checkpoint.folder()));
        resumed.is_some_and(|folder| folder.parent() == real(dir).as_deref())
    }

    /// Returns the file of `--trace`. Of several processes, all but that of rank 0 add their rank to its name.
    fn trace_path(&self) -> Option<PathBuf> {
        let path = self.config.trace.as_ref()?;
        let Some(rank) = self.machine.own_rank().filter(|rank| *rank > 0) else {
            return Some(path.clone());
        };
        let extension = path.extension().unwrap_or_default().to_string_lossy();
        Some(path.with_extension(format!("rank{rank}.{extension}")))
    }
}
