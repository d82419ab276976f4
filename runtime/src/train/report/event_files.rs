//! `--tensorboard`: the metrics of steps as scalars in event files of TensorBoard.
//!
//! Each start of a run adds a file to the folder, which TensorBoard reads after the earlier ones. A file that it is
//! reading is never written over: it would take the rest for damaged.

use std::fs::{self, File};
use std::io::{self, BufReader, ErrorKind, Seek, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::os::{ClaimedFile, free_name};
use crate::train::console::print_line;

use super::event_records::{
    begins_events, read_record, scalar_record, start_record, version_record,
};
use super::metrics::{StepMetrics, unix_time};
use super::metrics_lines::KnownSteps;
use super::report_file::{MetricsError, ReportFile};

const FLAG: &str = "--tensorboard";

/// The part of a file's name by which TensorBoard finds it.
const NAME: &str = "tfevents";

/// Start and end of the names of our files. In between is the time of their creation.
const OWN_NAME: [&str; 2] = ["events.out.tfevents.", ".meshwright"];

/// Name of the folders to which the files of earlier runs are moved, before their number. TensorBoard shows each as a
/// run of its own.
const EARLIER: &str = "earlier.";

/// Returns true for a name under which runs write to the folder, or have written.
pub fn is_name_of_events(name: &str) -> bool {
    name.contains(NAME) || name.starts_with(EARLIER)
}

/// An event file that is there before a run.
#[derive(Debug)]
struct EarlierFile {
    claimed: ClaimedFile,
    path: PathBuf,
    /// Seconds since 1970.
    created: u32,
}

/// A folder of event files, which are locked for a run, and have not been changed.
#[derive(Debug)]
pub struct ClaimedEvents {
    dir: PathBuf,
    /// In the order in which they were written.
    files: Vec<EarlierFile>,
    run: KnownSteps,
}

impl ClaimedEvents {
    /// Checks that a run can write to the folder at `dir`, which may not exist.
    ///
    /// # Errors
    /// A folder with event files of another program, whose curves TensorBoard would mix with those of the run; one to
    /// which another run writes; and one that cannot be read.
    pub fn claim(dir: &Path, run: KnownSteps) -> Result<ClaimedEvents, MetricsError> {
        let mut files = Vec::new();
        let names = match fs::read_dir(dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            entries => entries
                .and_then(|entries| entries.map(|entry| Ok(entry?.file_name())).collect())
                .map_err(failed("open", dir))?,
        };
        for name in names {
            let name = name.to_string_lossy();
            if !name.contains(NAME) {
                continue;
            }
            let path = dir.join(&*name);
            let own =
                name.strip_prefix(OWN_NAME[0]).and_then(|name| name.strip_suffix(OWN_NAME[1]));
            let created = own.and_then(|seconds| seconds.parse().ok());
            let check = |file: &File| match created {
                Some(_) if begins_events(file) => Ok(()),
                _ => Err(io::Error::other(
                    "another program has written it, and TensorBoard would mix its curves with those of this run; \
                     name another folder",
                )),
            };
            let claimed = ClaimedFile::claim(&path, check).map_err(failed("continue", &path))?;
            files.push(EarlierFile { claimed, path, created: created.unwrap_or_default() });
        }
        files.sort_by_key(|file| file.created);
        Ok(ClaimedEvents { dir: dir.to_owned(), files, run })
    }

    /// Opens a new file for a run. One from the beginning moves earlier files to a folder `earlier.1` and so on. A
    /// resumed run removes the records of later steps, which will be repeated, and what is torn or damaged. If the
    /// files have records of another run, a copy of them is kept in such a folder.
    ///
    /// # Errors
    /// Files that cannot be created, read or written.
    pub fn open(self) -> Result<EventFile, MetricsError> {
        let ClaimedEvents { dir, files, run } = self;
        fs::create_dir_all(&dir).map_err(failed("create", &dir))?;
        let newest = files.last().map(|file| u64::from(file.created) + 1).unwrap_or_default();
        let now = unix_time();
        let name = format!("{}{:010}{}", OWN_NAME[0], newest.max(now as u64), OWN_NAME[1]);
        let path = dir.join(name);
        let new = ClaimedFile::claim(&path, |_| Ok(())).and_then(ClaimedFile::keep);
        let mut file = new.map_err(failed("create", &path))?;
        if run.done > 0 {
            shorten(&dir, &files, run)?;
        } else if !files.is_empty() {
            let aside = put_aside(&dir, &files, |from, to| fs::rename(from, to))?;
            let aside = aside.display();
            print_line(&format!("{FLAG}: the events of an earlier run are now in {aside}"));
        }
        let mut first = version_record(now);
        if run.done > 0 {
            first.extend(start_record(now, run.done + 1));
        }
        file.write_all(&first).map_err(failed("write", &path))?;
        Ok(EventFile(ReportFile::new(FLAG, path, file)))
    }
}

/// Removes all records after the steps that are done, and keeps a copy if they are none of the run.
fn shorten(dir: &Path, files: &[EarlierFile], run: KnownSteps) -> Result<(), MetricsError> {
    let (mut last, mut other_run, mut kept) = (0, None, Vec::new());
    for EarlierFile { claimed, path, .. } in files {
        let Some(file) = claimed.existing() else { continue };
        let (mut read, mut bytes, mut is_done) = (0, 0, false);
        let mut reader = BufReader::new(file);
        let unread = || failed("read", path);
        reader.rewind().map_err(unread())?;
        while let Some(record) = read_record(&mut reader).map_err(unread())? {
            is_done |= record.step.is_some_and(|step| step > run.done);
            read += record.bytes;
            bytes += if is_done { 0 } else { record.bytes };
            let Some(step) = record.step else { continue };
            let own = run.tokens.map(|tokens| tokens as f32);
            let other =
                record.tokens.filter(|tokens| own != Some(*tokens)).map(|tokens| tokens as u64);
            let difference = run.difference(last, step, other);
            other_run = other_run
                .or(difference.map(|text| format!("a record of {} {text}", path.display())));
            last = step;
        }
        if read < file.metadata().map_err(unread())?.len() {
            other_run = other_run.or(Some(format!("{} is damaged at byte {read}", path.display())));
        }
        kept.push((file, path, bytes));
    }
    if let Some(other) = other_run {
        let aside = put_aside(dir, files, |from, to| fs::copy(from, to).map(drop))?;
        print_line(&format!(
            "warning: {FLAG}: {} has records that are none of this run ({other}); a copy of them is in {}",
            dir.display(),
            aside.display()
        ));
    }
    kept.iter()
        .try_for_each(|(file, path, bytes)| file.set_len(*bytes).map_err(failed("shorten", path)))
}

/// Moves or copies files to a new folder in `dir`, and returns that.
fn put_aside(
    dir: &Path,
    files: &[EarlierFile],
    put: fn(&Path, &Path) -> io::Result<()>,
) -> Result<PathBuf, MetricsError> {
    let aside = free_name(&dir.join(EARLIER.trim_end_matches('.')));
    fs::create_dir(&aside).map_err(failed("create", &aside))?;
    for EarlierFile { path, .. } in files {
        let to = aside.join(path.file_name().unwrap_or_default());
        put(path, &to).map_err(failed("move", path))?;
    }
    Ok(aside)
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> MetricsError {
    MetricsError::of(FLAG, action, path)
}

/// An open event file.
#[derive(Debug)]
pub struct EventFile(ReportFile);

impl EventFile {
    /// Writes the scalars of a step; nothing, after a record that could not be written.
    ///
    /// # Errors
    /// A record that cannot be written.
    pub fn write_step(&mut self, step: &StepMetrics) -> Result<(), MetricsError> {
        self.0.append(|| {
            let mut scalars = Vec::new();
            flatten(String::new(), &serde_json::to_value(step)?, &mut scalars);
            scalars.retain(|(tag, _)| tag != "step" && tag != "time");
            Ok(scalar_record(step.time, step.step, &scalars))
        })
    }
}

/// Adds the numbers of a value by their path, such as `peak_bytes/total`; a number that JSON does not have is NaN.
fn flatten(path: String, value: &Value, scalars: &mut Vec<(String, f64)>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let path = if path.is_empty() { key.clone() } else { format!("{path}/{key}") };
                flatten(path, value, scalars);
            }
        }
        value => scalars.push((path, value.as_f64().unwrap_or(f64::NAN))),
    }
}
