//! The report about the files of all ranks.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::analysis::analyze;
use super::cause::FlightCause;
use super::file::{End, RankRecord, VERSION};
use super::folder::rank_files;

/// The result of merging the files of a folder.
#[derive(Debug)]
pub struct FlightReport {
    records: Vec<RankRecord>,
    findings: Vec<FlightCause>,
}

/// A folder that has no recording of one run.
#[derive(Debug, thiserror::Error)]
pub enum FlightError {
    /// A folder or file cannot be read.
    #[error("{path}: {error}")]
    Unreadable {
        /// The folder or file.
        path: PathBuf,
        /// The error of the system.
        error: std::io::Error,
    },
    /// There are no files of ranks.
    #[error(
        "{0} has no file of a rank, such as rank-00000.json; name the folder of --flight, or `flight` in that of --save"
    )]
    Empty(PathBuf),
    /// A file is not that of a rank.
    #[error("{path} is not the file of a rank: {problem}")]
    NotARecord {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// The files belong to several runs.
    #[error("{first} and {second} are of two runs; remove those of one of them")]
    TwoRuns {
        /// A file of the first run.
        first: PathBuf,
        /// A file of another one.
        second: PathBuf,
    },
}

/// Reads a file of a rank, which is no pipe and no device.
fn read_whole(path: &Path) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is no regular file; move it away"));
    }
    fs::read(path)
}

impl FlightReport {
    /// Reads the files of a folder, and looks for the rank that has stopped the others.
    ///
    /// # Errors
    /// A folder without files of ranks, files that cannot be read, and files of several runs.
    pub fn of_folder(folder: &Path) -> Result<FlightReport, FlightError> {
        let unreadable = |path: &Path| {
            let path = path.to_owned();
            move |error| FlightError::Unreadable { path, error }
        };
        let paths = rank_files(folder).map_err(unreadable(folder))?;
        let Some(first) = paths.first() else { return Err(FlightError::Empty(folder.into())) };
        let mut records: Vec<RankRecord> = Vec::new();
        for path in &paths {
            let bytes = read_whole(path).map_err(unreadable(path))?;
            let record = read_record(&bytes)
                .map_err(|problem| FlightError::NotARecord { path: path.clone(), problem })?;
            if records
                .first()
                .is_some_and(|known| (&known.run, known.world) != (&record.run, record.world))
            {
                return Err(FlightError::TwoRuns { first: first.clone(), second: path.clone() });
            }
            if records.iter().any(|known| known.rank == record.rank) {
                let problem = format!("another file is of rank {} too", record.rank);
                return Err(FlightError::NotARecord { path: path.clone(), problem });
            }
            records.push(record);
        }
        records.sort_by_key(|record| record.rank);
        let findings = analyze(&records);
        Ok(FlightReport { records, findings })
    }

    /// Returns the ranks that have stopped or slowed down the others, the first cause first.
    pub fn culprits(&self) -> Vec<usize> {
        let mut culprits = Vec::new();
        for rank in self.findings.iter().flat_map(|finding| &finding.culprits) {
            if !culprits.contains(rank) {
                culprits.push(*rank);
            }
        }
        culprits
    }
}

/// Reads a file, and checks what the analysis relies on.
fn read_record(bytes: &[u8]) -> Result<RankRecord, String> {
    let record: RankRecord = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if record.meshwright_flight != VERSION {
        return Err(format!("version {} of the format is unknown", record.meshwright_flight));
    }
    let is_rank = |rank: &usize| *rank < record.world;
    let members = record.groups.iter().flat_map(|group| &group.members);
    // Ranks without files are listed.
    if record.world > 1 << 20 || !is_rank(&record.rank) || !members.clone().all(is_rank) {
        return Err(format!("it names ranks that a run of {} does not have", record.world));
    }
    Ok(record)
}

impl fmt::Display for FlightReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, ..] = &self.records[..] else { return Ok(()) };
        let (files, world) = (self.records.len(), first.world);
        writeln!(f, "run {}: files of {files} of {world} ranks", first.run)?;
        for finding in &self.findings {
            writeln!(f, "{}", finding.text)?;
        }
        if self.findings.is_empty() && files < world {
            writeln!(
                f,
                "the files do not show which rank has stopped the others; those of {} are missing: SIGUSR2 asks one \
                 process, or all by that of mpirun or `meshwright run`",
                if world - files == 1 {
                    "a rank".to_owned()
                } else {
                    format!("{} ranks", world - files)
                }
            )?;
        } else if self.findings.is_empty() {
            writeln!(f, "no rank differs from the others, is missing, or makes them wait")?;
        }
        for record in &self.records {
            let state = match record.end {
                End::Running => "runs",
                End::Returned => "has returned",
                End::Failed => "has failed",
                End::CallFailed => "has failed in a call",
            };
            write!(f, "rank {} {state}, in step {}", record.rank, record.step)?;
            match record.calls.last() {
                Some(call) => {
                    let open = if call.ended.is_none() { ", not complete" } else { "" };
                    write!(f, "; last call: {}, number {}{open}", call.operation(), call.number)?;
                }
                None => write!(f, "; it has made no call")?,
            }
            if let Some(line) = record.message.as_ref().and_then(|text| text.lines().next()) {
                write!(f, " ({line})")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
