//! Lines of a metrics file that is there before a run: if runs have written them, and which ones a resumed run keeps.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};

use serde_json::Value;

/// Most bytes of a line, or of the torn end of a file.
const MAX_LINE: u64 = 64 << 20;

/// Keys of each line of every version, besides `step`.
const KEYS: [&str; 4] = ["loss", "grad_norm", "lr", "tokens"];

/// The start of a line, with the number of its step in between.
const START: [&[u8]; 2] = [b"{\"step\":", b",\"loss\":"];

/// Steps of a run, as far as they are known before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownSteps {
    /// Steps that are done: a resumed run continues after them.
    pub done: u64,
    /// Steps in total.
    pub total: u64,
    /// Tokens of each step, if they are the same in all.
    pub tokens: Option<u64>,
}

impl KnownSteps {
    /// Describes the difference between an earlier record of `step`, after one of `last`, and a record of the run.
    pub(super) fn difference(self, last: u64, step: u64, tokens: Option<u64>) -> Option<String> {
        if step <= last {
            Some(format!("is of step {step}, after one of step {last}"))
        } else if step > self.total {
            Some(format!("is of step {step}, and the run ends at step {}", self.total))
        } else {
            let tokens = tokens.zip(self.tokens).filter(|(found, own)| found != own);
            tokens.map(|(found, own)| format!("has {found} tokens, and a step has {own}"))
        }
    }
}

/// The lines that a resumed run keeps.
pub struct KeptLines {
    /// Length of the complete lines of steps that are done.
    pub bytes: u64,
    /// Seconds of the steps that are done, if each has a line with them.
    pub seconds: Option<f64>,
    /// A line that is none of the run, nor of an earlier part of it.
    pub other_run: Option<String>,
}

/// Metrics of a line that have to be a run's.
struct Line {
    step: u64,
    tokens: Option<u64>,
    step_ms: Option<f64>,
}

impl Line {
    /// Reads a line; `None` if it does not have the metrics of a step.
    fn parse(line: &[u8]) -> Option<Line> {
        let value: Value = serde_json::from_slice(line).ok()?;
        let step = value.get("step")?.as_u64()?;
        let has_all = KEYS.iter().all(|key| value.get(*key).is_some());
        has_all.then(|| Line {
            step,
            tokens: value["tokens"].as_u64(),
            step_ms: value["step_ms"].as_f64(),
        })
    }
}

/// Checks that every line of a file has the metrics of a step, and the last one is at most torn.
pub fn check_lines(file: &File) -> io::Result<()> {
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    for number in 1u64.. {
        line.clear();
        if (&mut reader).take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        if Line::parse(&line).is_none() && !is_torn(&line) {
            return Err(io::Error::other(format!(
                "its line {number} has no metrics of a step, and would be lost; name another file, or remove this one"
            )));
        }
    }
    Ok(())
}

/// Returns true for the start of a line that a failure has cut off. A power failure can leave bytes of value 0 at its
/// end, or instead of it.
fn is_torn(line: &[u8]) -> bool {
    let end = line.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let written = &line[..end];
    if line.ends_with(b"\n")
        || written.contains(&0)
        || serde_json::from_slice::<Value>(written).is_ok()
    {
        return false;
    }
    let begins_with = |text: &[u8], start: &[u8]| text.iter().zip(start).all(|(a, b)| a == b);
    let written: Vec<u8> = written.iter().copied().filter(|byte| *byte != b' ').collect();
    let rest = written.get(START[0].len()..).unwrap_or_default();
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    begins_with(&written, START[0]) && begins_with(&rest[digits..], START[1])
}

/// Reads the lines of a checked file for a resumed run.
pub fn read_kept(file: &File, run: KnownSteps) -> io::Result<KeptLines> {
    let mut reader = BufReader::new(file);
    reader.rewind()?;
    let mut kept = KeptLines { bytes: 0, seconds: None, other_run: None };
    let mut seconds = Some(0.0);
    let (mut line, mut last, mut is_done) = (Vec::new(), 0, false);
    for number in 1u64.. {
        line.clear();
        (&mut reader).take(MAX_LINE).read_until(b'\n', &mut line)?;
        let Some(found) = Line::parse(&line).filter(|_| line.ends_with(b"\n")) else { break };
        is_done |= found.step > run.done;
        if !is_done {
            kept.bytes += line.len() as u64;
            let is_next = found.step == last + 1;
            seconds =
                seconds.zip(found.step_ms.filter(|_| is_next)).map(|(all, ms)| all + ms / 1e3);
            kept.seconds = seconds.filter(|_| found.step == run.done);
        }
        let difference = run.difference(last, found.step, found.tokens);
        kept.other_run = kept.other_run.or(difference.map(|text| format!("line {number} {text}")));
        last = found.step;
    }
    Ok(kept)
}
