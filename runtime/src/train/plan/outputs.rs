//! Files and folders that the run writes, checked before any work could be lost.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::checkpoint::hf::{ExportLock, HfExport};
use crate::checkpoint::{Checkpoint, CheckpointError, CheckpointFolder};
use crate::data::is_remote;
use crate::os::ClaimedFile;
use crate::trace::{Tracer, is_trace};
use crate::train::config::Config;
use crate::train::console::print_shared;
use crate::train::report::{
    ClaimedEvents, ClaimedMetrics, KnownSteps, MetricsFiles, PrometheusFile,
};
use crate::train::{Error, Result};

use super::Plan;
use super::claimed_output::{claim, unwritable};
use super::output_check::check_outputs;
use super::record_file::RecordFile;
use super::shared_folder::require_shared;

/// The outputs that a run keeps open.
#[derive(Default)]
pub struct PreparedOutputs {
    /// In the process of rank 0.
    pub metrics: MetricsFiles,
    pub trace: Option<TraceFile>,
    /// In the process of rank 0.
    pub record: Option<RecordFile>,
    /// The folder of `--save`, if this process prepares it for the others. Locked to the end of the run.
    pub checkpoints: Option<CheckpointFolder>,
    /// The lock of the folder of `--export-hf`, in the process of rank 0.
    _export: Option<ExportLock>,
    /// The locked file of `--stage-times`, in the process of rank 0.
    _stage_times: Option<File>,
}

/// The open file of `--trace`, which is written when the run ends.
pub struct TraceFile {
    path: PathBuf,
    file: File,
}

impl TraceFile {
    /// Opens the claimed file at `path`, and moves an earlier trace aside.
    fn open(path: PathBuf, claimed: ClaimedFile) -> Result<TraceFile> {
        let (file, aside) = claimed.replace().map_err(unwritable("--trace", &path))?;
        if let Some(aside) = aside {
            print_shared(&format!(
                "--trace: the trace of an earlier run is now {}",
                aside.display()
            ));
        }
        Ok(TraceFile { path, file })
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

/// Returns true for the times of stages: a number for each path.
fn is_stage_times(file: &mut dyn Read) -> bool {
    serde_json::from_reader::<_, BTreeMap<String, f64>>(file).is_ok()
}

impl Plan {
    /// Creates or opens every output but the metrics, and refuses outputs that are also inputs.
    pub fn prepare_outputs(&self) -> Result<PreparedOutputs> {
        let Config { metrics, tensorboard, prometheus, stage_times, record, .. } = &self.config;
        check_outputs(&self.config, self.resume.as_ref().map(Checkpoint::folder))?;
        self.create_folders_of_reports();
        if let Some(flight) = &self.config.flight {
            let rank = self.machine.own_rank().unwrap_or(0);
            let checked = CheckpointFolder::check_writable(flight, rank);
            checked.map_err(Error::of_flag("--flight"))?;
        }
        // Of several processes, that of rank 0 writes.
        let is_first = self.machine.own_rank().is_none_or(|rank| rank == 0);
        let of_first = |path: &Option<PathBuf>| path.clone().filter(|_| is_first);
        // All are locked before one is changed, by this run or by one that is refused.
        let claim_metrics =
            |path: PathBuf| ClaimedMetrics::claim("--metrics", &path, self.known_steps());
        let lines = of_first(metrics).map(claim_metrics).transpose()?;
        let claim_events = |dir: PathBuf| ClaimedEvents::claim(&dir, self.known_steps());
        let events = of_first(tensorboard).map(claim_events).transpose()?;
        let latest = of_first(prometheus).map(PrometheusFile::claim).transpose()?;
        let claim_trace = |path: PathBuf| claim("--trace", path, is_trace);
        let trace = self.trace_path().map(claim_trace).transpose()?;
        let claim_times = |path: PathBuf| claim("--stage-times", path, is_stage_times);
        let stage_times = of_first(stage_times).map(claim_times).transpose()?;
        let record = of_first(record).map(|path| RecordFile::claim(self, path)).transpose()?;
        let checkpoints = self.prepare_save().map_err(Error::of_flag("--save"))?;
        if let (Some(save), Some(store)) = (&self.config.save, self.machine.store()) {
            require_shared(store, &save.dir)?;
        }
        if checkpoints.is_some() {
            self.dataset.prepare_position()?;
        }
        let export = self.prepare_export().map_err(Error::of_flag("--export-hf"))?;
        let events = events.map(ClaimedEvents::open).transpose()?;
        let lines = lines.map(ClaimedMetrics::open).transpose()?;
        let latest = latest.map(PrometheusFile::begin).transpose()?;
        let trace = trace.map(|(claimed, path)| TraceFile::open(path, claimed)).transpose()?;
        // The times of an earlier run stay until the times of this one are known.
        let keep_times = |(claimed, path): (ClaimedFile, PathBuf)| {
            claimed.keep().map_err(unwritable("--stage-times", &path))
        };
        let stage_times = stage_times.map(keep_times).transpose()?;
        self.announce_unsaved_steps();
        Ok(PreparedOutputs {
            metrics: MetricsFiles { lines, events, latest },
            trace,
            record,
            checkpoints,
            _export: export,
            _stage_times: stage_times,
        })
    }

    /// Announces steps that no output will have.
    fn announce_unsaved_steps(&self) {
        let Config { save, export_hf, steps, .. } = &self.config;
        let is_kept = save.is_some() || export_hf.is_some() || self.first_step() >= *steps;
        let is_first = self.machine.own_rank().is_none_or(|rank| rank == 0);
        if let Some(checkpoint) = self.resume.as_ref().filter(|_| !is_kept && is_first) {
            let folder = checkpoint.folder().parent().unwrap_or(Path::new("."));
            print_shared(&format!(
                "--resume: without --save, the steps of this run are lost when it ends; add --save {} to keep them",
                folder.display()
            ));
        }
    }

    /// Creates the folders of `--save`, `--export-hf` and `--tensorboard` that are to hold reports, too. An error is
    /// reported when the folder is prepared.
    fn create_folders_of_reports(&self) {
        let Config { save, export_hf, metrics, tensorboard, prometheus, .. } = &self.config;
        let Config { trace, stage_times, record, .. } = &self.config;
        let save = save.as_ref().map(|save| &save.dir);
        let folders = [save, export_hf.as_ref(), tensorboard.as_ref()];
        let reports = [metrics, prometheus, trace, stage_times, record].into_iter().flatten();
        let parents = reports.filter_map(|path| path.parent());
        for folder in parents.filter(|parent| !is_remote(parent)) {
            if folders.into_iter().flatten().any(|of_run| of_run == folder) {
                let _ = std::fs::create_dir_all(folder);
            }
        }
    }

    /// Returns what the lines of the metrics file are compared with.
    fn known_steps(&self) -> KnownSteps {
        let Config { batch, seq, steps, .. } = self.config;
        let tokens = (batch * seq) as u64;
        let tokens = Some(tokens)
            .filter(|_| !self.dataset.ignores_targets() && self.dataset.first_step() == 0);
        KnownSteps { done: self.first_step(), total: steps, tokens }
    }

    /// Checks the folder of `--save`. Of several processes, that of rank 0 prepares it.
    fn prepare_save(&self) -> std::result::Result<Option<CheckpointFolder>, CheckpointError> {
        #[cfg(feature = "remote")]
        if let Some(folder) = &self.config.save_cache {
            crate::checkpoint::use_cache_folder(folder)?;
        }
        let Some(save) = &self.config.save else { return Ok(None) };
        if let Some(rank) = self.machine.own_rank().filter(|rank| *rank > 0) {
            CheckpointFolder::check_writable(&save.dir, rank)?;
            return Ok(None);
        }
        let folder = CheckpointFolder::prepare(&save.dir)?;
        if self.config.save.as_ref().is_some_and(|save| save.best) {
            folder.check_best()?;
        }
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
            print_shared(&format!(
                "warning: --save: {dir} holds {which}; checkpoints of equal steps will be replaced, and the others are \
                 kept, without being counted by --keep; {advice}"
            ));
        }
        Ok(Some(folder))
    }

    /// Checks the folder of `--export-hf`. Of several processes, that of rank 0 locks it.
    fn prepare_export(&self) -> std::result::Result<Option<ExportLock>, CheckpointError> {
        let (Some(folder), Some(format)) = (&self.config.export_hf, &self.export) else {
            return Ok(None);
        };
        HfExport::prepare(folder, format)?;
        let is_first = self.machine.own_rank().is_none_or(|rank| rank == 0);
        if !is_first {
            return Ok(None);
        }
        let lock = HfExport::lock(folder)?;
        let stale = HfExport::stale_files(folder, format);
        if let Some(first) = stale.first() {
            print_shared(&format!(
                "warning: --export-hf: {} has files that are none of this model ({}); the export renames them to \
                 {first}.1 and so on",
                folder.display(),
                stale.join(", ")
            ));
        }
        Ok(Some(lock))
    }

    /// Returns true if the run resumes from a checkpoint in `dir`.
    pub fn resumes_from(&self, dir: &Path) -> bool {
        let real = |path: &Path| {
            if is_remote(path) { Some(path.to_owned()) } else { path.canonicalize().ok() }
        };
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
