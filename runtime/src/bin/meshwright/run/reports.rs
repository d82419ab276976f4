//! The reports of the processes of an attempt to their supervisor.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use meshwright_comm::__internal::random_id;
use meshwright_comm::__internal::run_reports::{RunReport, create_reports, read_reports};

/// The file of the reports of one attempt, in the folder of temporary files. It is removed in the end.
pub struct Reports {
    /// `None` if the file could not be created.
    path: Option<PathBuf>,
}

/// The failure that the processes of an attempt have reported.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ReportedFailure {
    /// The rank that failed first.
    pub rank: Option<usize>,
    /// The rank that has written the message, if it is known.
    pub reporter: Option<usize>,
    /// The whole message.
    pub reason: Option<String>,
}

impl Reports {
    /// Creates an empty file.
    pub fn create() -> Reports {
        let create = || {
            let name = format!("meshwright-run-{}-{}", std::process::id(), random_id()?);
            let path = env::temp_dir().join(name);
            create_reports(&path).map(|()| path)
        };
        Reports { path: create().ok() }
    }

    /// The file, if there is one.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Returns true if a program of Meshwright has started, or if that is not known: systems remove old temporary
    /// files.
    pub fn has_started(&self) -> bool {
        self.path().is_none_or(|path| !path.exists()) || !self.read().is_empty()
    }

    /// Returns the checkpoint from which the attempt continues.
    pub fn resumed(&self) -> Option<PathBuf> {
        self.read().into_iter().find_map(|report| match report {
            RunReport::Resumed(folder) => Some(folder),
            _ => None,
        })
    }

    /// Returns the first failure.
    pub fn failure(&self) -> ReportedFailure {
        first_failure(&self.read())
    }

    fn read(&self) -> Vec<RunReport> {
        self.path().map(read_reports).unwrap_or_default()
    }
}

impl Drop for Reports {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // One that stays is small.
            let _ = fs::remove_file(path);
        }
    }
}

/// Returns the failure of the rank that has failed by itself, else of the rank that others have lost.
fn first_failure(reports: &[RunReport]) -> ReportedFailure {
    let mut lost = ReportedFailure::default();
    let mut message = None;
    for report in reports {
        match report {
            RunReport::Failed { rank, stopped_by: None, reason } => {
                let (rank, reason) = (Some(*rank), Some(reason.clone()));
                return ReportedFailure { rank, reporter: rank, reason };
            }
            RunReport::Failed { rank, stopped_by, reason } if lost.rank.is_none() => {
                let (reporter, reason) = (Some(*rank), Some(reason.clone()));
                lost = ReportedFailure { rank: *stopped_by, reporter, reason };
            }
            RunReport::Message(text) => {
                message.get_or_insert_with(|| text.clone());
            }
            _ => {}
        }
    }
    ReportedFailure { reason: lost.reason.or(message), ..lost }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_removed_proves_nothing() {
        let reports = Reports::create();
        let path = reports.path().unwrap().to_owned();
        assert!(!reports.has_started());
        fs::remove_file(&path).unwrap();
        assert!(reports.has_started());
    }

    #[test]
    fn the_first_failure_is_that_of_the_cause() {
        let failed = |rank, stopped_by, reason: &str| RunReport::Failed {
            rank,
            stopped_by,
            reason: reason.into(),
        };
        let reports = [
            RunReport::Started,
            failed(0, Some(2), "lost rank 2"),
            RunReport::Message("printed".into()),
            failed(2, None, "the disk\nis full"),
        ];
        let of = |rank, reporter, reason: &str| {
            let reason = Some(reason.into());
            ReportedFailure { rank, reporter, reason }
        };
        assert_eq!(first_failure(&reports), of(Some(2), Some(2), "the disk\nis full"));
        assert_eq!(first_failure(&reports[..3]), of(Some(2), Some(0), "lost rank 2"));
        assert_eq!(first_failure(&reports[2..3]), of(None, None, "printed"));
        assert_eq!(first_failure(&reports[..1]), ReportedFailure::default());
    }
}
