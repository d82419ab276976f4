//! The log of a supervised run, `run.log` in the folder of its checkpoints: one JSON object for each event.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use meshwright_os::{ClaimedFile, InputFile};
use serde::{Deserialize, Serialize};

use crate::data::is_remote;

use super::lock::this_process;
use super::names::RUN_LOG;
use super::place::storage_of;
use super::{CheckpointError, files};

/// Most bytes of an event that are read.
const MAX_LINE: u64 = 1 << 16;

/// An event of a supervised run. Unknown keys are ignored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunEvent {
    /// Time in seconds since 1970 (Unix time).
    pub time: f64,
    /// The same time in UTC, for readers.
    pub date: String,
    /// The kind of the event.
    pub event: RunEventKind,
    /// The attempt, from 1 in each call of the supervisor.
    pub attempt: u32,
    /// Processes that are started, if the supervisor starts them itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<usize>,
    /// The supervisor that starts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supervisor: Option<String>,
    /// The checkpoint from which the attempt continues: for a start the newest one, or that of `--resume`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<PathBuf>,
    /// The exit code of the attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u8>,
    /// The rank that failed first, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<usize>,
    /// The cause of the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The newest checkpoint after the attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<PathBuf>,
    /// Seconds to the next attempt, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_in: Option<u64>,
}

/// A kind of event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunEventKind {
    /// The processes of an attempt are started.
    Start,
    /// The training program continues from a checkpoint, the newest intact one.
    Resume,
    /// A signal asks the supervisor for a stop.
    Signal,
    /// Processes are killed.
    Kill,
    /// All processes of an attempt have ended.
    End,
}

impl RunEvent {
    /// Creates an event of this moment.
    pub fn now(event: RunEventKind, attempt: u32) -> RunEvent {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let since_epoch = since_epoch.unwrap_or_default();
        RunEvent {
            time: since_epoch.as_millis() as f64 / 1000.0,
            date: utc_date(since_epoch.as_secs()),
            event,
            attempt,
            processes: None,
            supervisor: (event == RunEventKind::Start).then(this_process),
            from: None,
            code: None,
            rank: None,
            reason: None,
            checkpoint: None,
            restart_in: None,
        }
    }
}

/// The open log of a run, with one writer.
#[derive(Debug)]
pub struct RunLog {
    file: File,
    path: PathBuf,
    /// Folders that were created for it, the innermost first.
    created: Vec<PathBuf>,
    is_new: bool,
}

impl RunLog {
    /// Opens the log in `dir`, creating both if needed. Its earlier events stay.
    ///
    /// # Errors
    /// A folder or file that cannot be created or written, a file that is no log, and one that another supervisor
    /// writes.
    pub fn open(dir: &Path) -> Result<RunLog, CheckpointError> {
        // A program without support for it is refused before it starts anything.
        storage_of(dir)?;
        let mut created = Vec::new();
        if !is_remote(dir) {
            let is_missing = |path: &&Path| !path.as_os_str().is_empty() && !files::is_taken(path);
            created.extend(dir.ancestors().take_while(is_missing).map(Path::to_owned));
            files::create_folder(dir)?;
        }
        let path = log_path(dir);
        let is_new = !files::is_taken(&path);
        let opened = ClaimedFile::claim(&path, check_log).and_then(ClaimedFile::keep);
        let opened = opened.and_then(|mut file| end_line(&mut file).map(|()| file));
        let file = opened.map_err(|error| match error.kind() {
            ErrorKind::ResourceBusy => supervised(&path),
            _ => CheckpointError::io_error("open", &path)(error),
        })?;
        Ok(RunLog { file, path, created, is_new })
    }

    /// Removes the log, unless it was there before, and the folders that were created for it, if nothing else is in
    /// them.
    pub fn discard(self) {
        if self.is_new {
            // What stays does no harm.
            let _ = fs::remove_file(&self.path);
            let _ = self.created.iter().try_for_each(fs::remove_dir);
        }
    }

    /// Adds an event.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn add(&mut self, event: &RunEvent) -> Result<(), CheckpointError> {
        let line = serde_json::to_string(event).map_err(io::Error::other);
        let written = line.and_then(|line| self.file.write_all(format!("{line}\n").as_bytes()));
        written.map_err(CheckpointError::io_error("write", &self.path))
    }

    /// Returns the time at which the run that a supervisor supervises at present has begun, in seconds since 1970:
    /// that of the first attempt that did not continue from a checkpoint in `dir`. `None` if the last attempt of the
    /// log has ended, or there is no log.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn beginning(dir: &Path) -> Result<Option<f64>, CheckpointError> {
        let events = RunLog::read(dir)?;
        if events.last().is_none_or(|last| last.event == RunEventKind::End) {
            return Ok(None);
        }
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let real_dir = real(dir);
        let is_inside = |from: &PathBuf| from.starts_with(dir) || real(from).starts_with(&real_dir);
        let begins = |event: &&RunEvent| {
            let is_first = event.event == RunEventKind::Start && event.attempt == 1;
            is_first && !event.from.as_ref().is_some_and(is_inside)
        };
        Ok(events.iter().rev().find(begins).map(|event| event.time))
    }

    /// Reads the events of the log in `dir`; none if there is no log.
    ///
    /// # Errors
    /// A file that cannot be read, and lines that are no events. A torn last line is left out.
    pub fn read(dir: &Path) -> Result<Vec<RunEvent>, CheckpointError> {
        let path = log_path(dir);
        match open_log(&path).and_then(|file| read_events(&file)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            read => read.map_err(CheckpointError::io_error("read", &path)),
        }
    }
}

/// Returns the path of the log of a run that saves in `dir`: for object storage, a file in the working directory.
fn log_path(dir: &Path) -> PathBuf {
    if is_remote(dir) { PathBuf::from(RUN_LOG) } else { dir.join(RUN_LOG) }
}

fn open_log(path: &Path) -> io::Result<File> {
    InputFile::open(path).map(InputFile::into_file)
}

/// Returns the error of a log that another supervisor writes.
fn supervised(path: &Path) -> CheckpointError {
    let events = open_log(path).and_then(|file| read_events(&file)).unwrap_or_default();
    let holder = events.into_iter().rev().find_map(|event| {
        let (supervisor, date) = (event.supervisor?, event.date);
        Some(format!("{supervisor}, which started attempt {} at {date}", event.attempt))
    });
    let holder = holder.unwrap_or_else(|| "a process that has just started".to_owned());
    CheckpointError::Supervised { log: path.to_owned(), holder }
}

/// Checks that a file begins with an event.
fn check_log(file: &File) -> io::Result<()> {
    let mut first = Vec::new();
    BufReader::new(file).take(MAX_LINE).read_until(b'\n', &mut first)?;
    let is_event = serde_json::from_slice::<RunEvent>(&first).is_ok();
    // The first event may be torn.
    if is_event || !first.ends_with(b"\n") && first.starts_with(b"{\"time\":") {
        return Ok(());
    }
    Err(io::Error::other("it is no log of `meshwright run`; move it away"))
}

/// Ends a line that a crash has torn.
fn end_line(file: &mut File) -> io::Result<()> {
    if file.metadata()?.len() == 0 {
        return Ok(());
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    if last == *b"\n" { Ok(()) } else { file.write_all(b"\n") }
}

fn read_events(file: &File) -> io::Result<Vec<RunEvent>> {
    let mut lines = BufReader::new(file);
    let (mut events, mut number, mut line) = (Vec::new(), 0, Vec::new());
    loop {
        line.clear();
        number += 1;
        if lines.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
            return Ok(events);
        }
        match serde_json::from_slice(&line) {
            Ok(event) => events.push(event),
            // Torn by a crash, after which the next event began a line.
            Err(error) if error.is_eof() => {}
            Err(error) => {
                let reason = format!("line {number} is no event of a run: {error}");
                return Err(io::Error::other(reason));
            }
        }
    }
}

/// Formats seconds since 1970 as `2026-11-29T20:55:17Z`.
fn utc_date(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years from March on, so that the leap day is the last one: Howard Hinnant, `civil_from_days`.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let shifted = (5 * day + 2) / 153;
    let day = day - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn dates_are_of_the_calendar() {
        for (seconds, date) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc_date(seconds), date);
        }
    }

    #[test]
    fn events_are_added_after_a_torn_line() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("out");
        assert_eq!(RunLog::read(&dir).unwrap(), []);
        let start = RunEvent { processes: Some(4), ..RunEvent::now(RunEventKind::Start, 1) };
        let mut log = RunLog::open(&dir).unwrap();
        log.add(&start).unwrap();
        let text = RunLog::open(&dir).unwrap_err().to_string();
        let own =
            format!("run.log is that of another `meshwright run` (process {}", std::process::id());
        assert!(text.contains(&own), "{text}");
        log.file.write_all(b"{\"time\":17").unwrap();
        drop(log);
        let end = RunEvent { code: Some(3), rank: Some(2), ..RunEvent::now(RunEventKind::End, 1) };
        RunLog::open(&dir).unwrap().add(&end).unwrap();
        assert_eq!(RunLog::read(&dir).unwrap(), [start, end]);
        // A log whose first event is torn.
        fs::write(dir.join(RUN_LOG), "{\"time\":17").unwrap();
        RunLog::open(&dir).unwrap();
        assert_eq!(RunLog::read(&dir).unwrap(), []);
    }

    #[test]
    fn a_discarded_log_leaves_what_was_there() {
        let dir = tempfile::tempdir().unwrap();
        let new = dir.path().join("a/b");
        RunLog::open(&new).unwrap().discard();
        assert!(!dir.path().join("a").exists());
        let log = RunLog::open(&new).unwrap();
        fs::write(dir.path().join("a/mine"), "").unwrap();
        log.discard();
        assert!(dir.path().join("a/mine").exists() && !new.exists());
        drop(RunLog::open(&new).unwrap());
        RunLog::open(&new).unwrap().discard();
        assert!(new.join(RUN_LOG).exists());
    }

    #[test]
    fn a_run_begins_with_an_attempt_from_elsewhere() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = RunLog::open(dir.path()).unwrap();
        let mut time = 0.0;
        let mut add = |event: RunEventKind, attempt: u32, from: Option<PathBuf>| {
            time += 1.0;
            log.add(&RunEvent { time, from, ..RunEvent::now(event, attempt) }).unwrap();
            RunLog::beginning(dir.path()).unwrap()
        };
        let own = || Some(dir.path().join("step-00000004"));
        let (start, end) = (RunEventKind::Start, RunEventKind::End);
        assert_eq!(add(start, 1, None), Some(1.0));
        assert_eq!(add(end, 1, None), None);
        // Before the first checkpoint, and after it, also by another supervisor.
        assert_eq!(add(start, 2, None), Some(1.0));
        assert_eq!(add(start, 3, own()), Some(1.0));
        assert_eq!(add(start, 1, own()), Some(1.0));
        assert_eq!(add(RunEventKind::Signal, 1, None), Some(1.0));
        // Another run in the same folder, and one that goes on from another folder.
        assert_eq!(add(start, 1, None), Some(7.0));
        assert_eq!(add(start, 1, Some("other/step-00000004".into())), Some(8.0));
    }

    #[test]
    fn other_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        for content in ["mine\n", "mine", "{\"step\":1}\n"] {
            fs::write(dir.path().join(RUN_LOG), content).unwrap();
            let text = RunLog::open(dir.path()).unwrap_err().to_string();
            assert!(text.contains("it is no log of `meshwright run`"), "{text}");
            assert_eq!(fs::read_to_string(dir.path().join(RUN_LOG)).unwrap(), content);
        }
        let text = RunLog::read(dir.path()).unwrap_err().to_string();
        assert!(text.contains("line 1 is no event of a run"), "{text}");
    }
}
