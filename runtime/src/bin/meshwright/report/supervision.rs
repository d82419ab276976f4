//! The events of `meshwright run`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use meshwright::checkpoint::{NewestCheckpoint, RunEvent, RunEventKind, step_of_path};
use meshwright::counted;
use meshwright::train::{page_paragraph, page_table};
use serde_json::{Value, json};

use super::run_steps::RunSteps;

/// Events that are listed, the last ones.
const LISTED: usize = 200;

/// The log of a supervised run.
pub struct LoggedRun {
    pub dir: PathBuf,
    pub events: Vec<RunEvent>,
}

impl LoggedRun {
    /// Returns true if the log is of `run`, which is one of `runs` in a report.
    pub fn is_of(&self, run: &RunSteps, runs: usize) -> bool {
        runs == 1 || real_folder(&self.dir) == real_folder(&run.dir)
    }

    /// Returns the last time, in seconds since 1970, at which an attempt has ended and none was started after it.
    pub fn end(&self) -> Option<f64> {
        self.events.last().filter(|event| event.event == RunEventKind::End).map(|event| event.time)
    }

    /// Describes the restarts between two times in seconds since 1970.
    pub fn restart_between(&self, from: f64, to: f64) -> Option<String> {
        let is_between = |event: &&RunEvent| from <= event.time && event.time <= to;
        let inside: Vec<&RunEvent> = self.events.iter().filter(is_between).collect();
        let starts = inside.iter().filter(|event| event.event == RunEventKind::Start);
        let first = starts.clone().next()?;
        let count = starts.count();
        let ended = inside.iter().find(|event| event.event == RunEventKind::End);
        let reason = ended.and_then(|end| end.reason.as_deref()?.lines().next());
        let reason = reason.map(|line| format!(": {line}")).unwrap_or_default();
        Some(match count {
            1 => format!("restart, attempt {}{reason}", first.attempt),
            count => format!("{count} restarts, from attempt {} on{reason}", first.attempt),
        })
    }

    /// Returns the steps of checkpoints that the log names, and of the newest one in its folder.
    pub fn checkpoints(&self) -> BTreeSet<u64> {
        let named = self.events.iter().filter_map(|event| event.checkpoint.as_deref());
        let steps = named.filter_map(step_of_path);
        steps.chain(NewestCheckpoint::find(&self.dir).map(|newest| newest.step)).collect()
    }

    fn restarts(&self) -> usize {
        self.events.iter().filter(|event| event.restart_in.is_some()).count()
    }

    /// Returns the events as HTML.
    pub fn table(&self) -> String {
        let left_out = self.events.len().saturating_sub(LISTED);
        let mut about = format!(
            "{}: {} in {}",
            self.dir.display(),
            counted(self.restarts(), "restart"),
            counted(self.events.len(), "event")
        );
        if left_out > 0 {
            about += &format!("; the first {left_out} are left out");
        }
        let rows = self.events[left_out..].iter().map(|event| {
            let path = |path: &Option<PathBuf>| path.as_deref().map(name).unwrap_or_default();
            let (kind, checkpoint) = match event.event {
                RunEventKind::Start => ("start", path(&event.from)),
                RunEventKind::Resume => ("resume", path(&event.from)),
                RunEventKind::Signal => ("signal", String::new()),
                RunEventKind::Kill => ("kill", String::new()),
                RunEventKind::End => ("end", path(&event.checkpoint)),
            };
            [
                event.date.clone(),
                event.attempt.to_string(),
                kind.to_owned(),
                event.code.map_or(String::new(), |code| code.to_string()),
                checkpoint,
                event.reason.clone().unwrap_or_default(),
            ]
        });
        page_paragraph(&format!("{about}."))
            + &page_table(["time", "attempt", "event", "code", "checkpoint", "reason"], 6, rows)
    }

    /// Returns the events as JSON.
    pub fn to_json(&self) -> Value {
        json!({ "dir": self.dir.display().to_string(), "restarts": self.restarts(), "events": self.events })
    }
}

/// Returns the path of a folder without symbolic links, which is the same however the folder is named.
pub fn real_folder(dir: &Path) -> PathBuf {
    // The folder of a file without one.
    let named = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    named.canonicalize().unwrap_or_else(|_| dir.to_owned())
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
