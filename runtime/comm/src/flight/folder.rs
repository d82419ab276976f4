//! The folder with the files of the ranks.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::super::process_launch::random::random_id;
use super::file::{End, RankRecord, VERSION};
use super::recorder::FlightRecorder;

/// The folder in which the ranks of a run write their last calls.
#[derive(Debug)]
pub struct FlightFolder {
    path: PathBuf,
    run: String,
    has_files: AtomicBool,
    problem: OnceLock<String>,
}

/// The end of a rank, for its file.
#[derive(Debug, Default)]
pub struct RankEnd {
    pub has_failed: bool,
    pub has_returned: bool,
    pub message: Option<String>,
    pub stopped_by: Option<usize>,
}

impl FlightFolder {
    /// Names the folder at `path`, for the run with an identifier that is the same on all its ranks; by default a
    /// random one. The folder is created when a rank writes.
    pub fn new(path: impl Into<PathBuf>, run: Option<String>) -> FlightFolder {
        let path = path.into();
        let id_of_process = |_| format!("{}-{}", std::process::id(), unix_time().as_nanos());
        let run = run.unwrap_or_else(|| random_id().unwrap_or_else(id_of_process));
        FlightFolder { path, run, has_files: AtomicBool::new(false), problem: OnceLock::new() }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns true if a rank of this process has written its file.
    pub fn has_files(&self) -> bool {
        self.has_files.load(Ordering::Relaxed)
    }

    /// Returns the first problem with writing a file, if there was one.
    pub fn problem(&self) -> Option<&str> {
        self.problem.get().map(String::as_str)
    }

    /// Writes the file of a rank, which replaces an earlier one. Files of other runs are removed.
    pub(crate) fn write(&self, rank: usize, world: usize, recorder: &FlightRecorder, end: RankEnd) {
        let (groups, calls) = recorder.records();
        let record = RankRecord {
            meshwright_flight: VERSION,
            run: self.run.clone(),
            rank,
            world,
            written: unix_time().as_micros() as u64,
            end: match end {
                RankEnd { has_returned: true, .. } => End::Returned,
                RankEnd { has_failed: false, .. } => End::Running,
                _ if recorder.has_failed_call() => End::CallFailed,
                _ => End::Failed,
            },
            message: end.message,
            stopped_by: end.stopped_by.or(recorder.stopped_by()),
            step: recorder.step(),
            groups,
            calls,
        };
        match self.write_record(&record) {
            Ok(()) => self.has_files.store(true, Ordering::Relaxed),
            Err(error) => {
                // The first one is enough.
                let _ = self.problem.set(format!("{}: {error}", self.path.display()));
            }
        }
    }

    fn write_record(&self, record: &RankRecord) -> io::Result<()> {
        fs::create_dir_all(&self.path)?;
        self.remove_other_runs()?;
        let path = self.path.join(format!("rank-{:05}.json", record.rank));
        let new = path.with_extension("json.new");
        let written = fs::write(&new, serde_json::to_vec(record)?);
        written.and_then(|()| fs::rename(&new, path)).inspect_err(|_| {
            // What is left would look like a recording. A folder with other files stays.
            let _ = fs::remove_file(&new);
            let _ = fs::remove_dir(&self.path);
        })
    }

    fn remove_other_runs(&self) -> io::Result<()> {
        let own = format!("\"run\":{}", serde_json::to_string(&self.run)?);
        for path in rank_files(&self.path)? {
            let start = read_start(&path).unwrap_or_default();
            let start = String::from_utf8_lossy(&start);
            // Another rank may remove it too.
            if start.contains("\"meshwright_flight\"") && !start.contains(&own) {
                let _ = fs::remove_file(path);
            }
        }
        Ok(())
    }
}

/// Reads the first bytes of a file, in which a recording names its run. A pipe is not waited for.
fn read_start(path: &Path) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    if fs::metadata(path)?.is_file() {
        File::open(path)?.take(200).read_to_end(&mut start)?;
    }
    Ok(start)
}

fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Returns the files of ranks in a folder, by their names.
pub fn rank_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        if name.is_some_and(|name| name.starts_with("rank-") && name.ends_with(".json")) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
