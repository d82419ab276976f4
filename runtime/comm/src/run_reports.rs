//! Reports of training programs to `meshwright run`, which has started them: lines of a file that it names in the
//! environment.
//!
//! The processes of a run have many ways to print, and a launcher may be between them and the supervisor. A file is
//! the same for all of them. On another host, or in a container, it may be missing; then nothing is reported.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Once;

use serde::{Deserialize, Serialize};

/// The environment variable with the path of the file.
pub const RUN_REPORTS: &str = "MESHWRIGHT_RUN_REPORTS";

/// Longest reason in bytes.
const MAX_REASON: usize = 1 << 13;

/// A report of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunReport {
    /// The process is a program of Meshwright.
    Started,
    /// The folder of the checkpoint from which the run continues.
    Resumed(PathBuf),
    /// A rank has failed.
    Failed {
        /// World rank.
        rank: usize,
        /// The rank whose end is the cause, if it is another one.
        stopped_by: Option<usize>,
        /// The whole message.
        reason: String,
    },
    /// The process ends with this message.
    Message(String),
}

/// Reports that a program of Meshwright runs, once in each process.
pub fn report_start() {
    static REPORTED: Once = Once::new();
    REPORTED.call_once(|| report(RunReport::Started));
}

/// Reports to the supervisor of this process, if there is one. A report that cannot be written is left out.
pub fn report(report: RunReport) {
    if let Some(path) = std::env::var_os(RUN_REPORTS) {
        // The run does not depend on its supervisor.
        let _ = add_report(Path::new(&path), report);
    }
}

/// Creates an empty file for reports, which only this user can write.
///
/// # Errors
/// A path that is taken, and a folder that cannot be written.
pub fn create_reports(path: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map(drop)
}

/// Reads the reports so far, in the order in which they were written.
pub fn read_reports(path: &Path) -> Vec<RunReport> {
    let text = fs::read_to_string(path).unwrap_or_default();
    // The last line may not be complete yet.
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn add_report(path: &Path, mut report: RunReport) -> io::Result<()> {
    if let RunReport::Failed { reason, .. } | RunReport::Message(reason) = &mut report {
        reason.truncate(reason.floor_char_boundary(MAX_REASON));
    }
    let line = format!("{}\n", serde_json::to_string(&report)?);
    // Not a pipe, which would wait for a reader.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("reports are written to a regular file"));
    }
    // The supervisor has created it. One write of a line is not mixed with those of other processes.
    OpenOptions::new().append(true).open(path)?.write_all(line.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_read_in_their_order() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("reports");
        add_report(&path, RunReport::Started).unwrap_err();
        assert!(!path.exists() && read_reports(&path).is_empty());
        create_reports(&path).unwrap();
        create_reports(&path).unwrap_err();
        let long = "ä".repeat(MAX_REASON);
        let failed = RunReport::Failed { rank: 2, stopped_by: None, reason: "two\nlines".into() };
        let written = [RunReport::Started, RunReport::Resumed("out/step-1".into()), failed];
        written.iter().for_each(|report| add_report(&path, report.clone()).unwrap());
        add_report(&path, RunReport::Message(long)).unwrap();
        // A line that is being written.
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"Failed").unwrap();
        let read = read_reports(&path);
        assert_eq!(read[..3], written);
        let cut = RunReport::Message("ä".repeat(MAX_REASON / 2));
        assert_eq!(read[3..], [cut]);
    }
}
