//! The events of `meshwright run`.

use std::path::{Path, PathBuf};

use meshwright::checkpoint::{RunEvent, RunEventKind};
use meshwright::counted;
use meshwright::train::{page_paragraph, page_table};
use serde_json::{Value, json};

/// Events that are listed, the last ones.
const LISTED: usize = 200;

/// The log of a supervised run.
pub struct LoggedRun {
    pub dir: PathBuf,
    pub events: Vec<RunEvent>,
}

impl LoggedRun {
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

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
