//! Files and folders that the run writes, checked before any work could be lost.

use std::fs::OpenOptions;
use std::path::PathBuf;

use crate::checkpoint::hf::HfExport;
use crate::checkpoint::{CheckpointError, CheckpointFolder};
use crate::train::config::Config;
use crate::train::{Error, Result};

use super::Plan;

impl Plan {
    /// Creates or opens every output, and refuses outputs that are also inputs. Returns the folder of `--save` if this process
    /// prepares it for the others.
    pub fn prepare_outputs(&self) -> Result<Option<CheckpointFolder>> {
        let real = |path: &Option<PathBuf>| path.as_ref().and_then(|path| path.canonicalize().ok());
        let Config { data, tokenizer, metrics, trace, stage_times, .. } = &self.config;
        let used = [
            ("--data", data),
            ("--tokenizer", tokenizer),
            ("--metrics", metrics),
            ("--trace", trace),
        ];
        for (output, path, others) in [
            ("--metrics", metrics, &used[..2]),
            ("--trace", trace, &used[..3]),
            ("--stage-times", stage_times, &used[..]),
        ] {
            let taken = |other: &Option<PathBuf>| {
                path.is_some() && other == path
                    || real(path).is_some_and(|path| real(other) == Some(path))
            };
            if let Some((flag, _)) = others.iter().find(|(_, other)| taken(other)) {
                return Err(Error::Input(format!(
                    "{output}: is also the file of {flag}; name another file to write to"
                )));
            }
        }
        // First, as a run that is refused because another one saves there must not empty the other's files.
        let folder = self.prepare_save().map_err(Error::of_flag("--save"))?;
        if let Some(path) = self.trace_file() {
            std::fs::File::create(&path).map_err(|error| {
                Error::Input(format!("--trace: cannot write {}: {error}", path.display()))
            })?;
        }
        if let Some(path) = stage_times {
            // The times of an earlier run stay until those of this one are known: `--stages` may have read them.
            let opened = OpenOptions::new().create(true).append(true).open(path);
            opened.map_err(|error| {
                Error::Input(format!("--stage-times: cannot write {}: {error}", path.display()))
            })?;
        }
        if let Some(folder) = &self.config.export_hf {
            HfExport::prepare(folder).map_err(Error::of_flag("--export-hf"))?;
        }
        Ok(folder)
    }

    /// Checks the folder of `--save`. Of several processes, that of rank 0 prepares it.
    fn prepare_save(&self) -> std::result::Result<Option<CheckpointFolder>, CheckpointError> {
        let Some(save) = &self.config.save else { return Ok(None) };
        match self.machine.own_rank() {
            None | Some(0) => CheckpointFolder::prepare(&save.dir).map(Some),
            Some(rank) => CheckpointFolder::check_writable(&save.dir, rank).map(|()| None),
        }
    }

    /// Returns the file of `--trace`. Of several processes, all but that of rank 0 add their rank to its name.
    pub fn trace_file(&self) -> Option<PathBuf> {
        let path = self.config.trace.as_ref()?;
        let Some(rank) = self.machine.own_rank().filter(|rank| *rank > 0) else {
            return Some(path.clone());
        };
        let extension = path.extension().unwrap_or_default().to_string_lossy();
        Some(path.with_extension(format!("rank{rank}.{extension}")))
    }
}
