//! The pipeline schedule of a run: generated or read from a file, and verified.

use std::path::Path;

use crate::layout::AxisId;
use crate::os::read_text;
use crate::schedule::{Finding, Schedule, Verified, csv, verify};
use crate::train::config::{Config, PipelineConfig, ScheduleSource};
use crate::train::console::counted;
use crate::train::{Error, Result};

/// Most forward passes of a step's schedule, over all stages and micro-batches.
const MAX_FORWARD_PASSES: usize = 1 << 20;

/// Most faults of a schedule file that one message lists.
const MAX_LISTED_FAULTS: usize = 5;

/// Returns the verified schedule of a pipeline.
///
/// # Errors
/// A file that cannot be read, has faults, or is for another number of ranks or micro-batches.
pub fn open_schedule(config: &Config, pipeline: &PipelineConfig) -> Result<Verified> {
    let schedule = match &pipeline.schedule {
        ScheduleSource::Named(_) => generate(config, pipeline)?,
        ScheduleSource::File(path) => read_schedule(config, path)?,
    };
    verify(&schedule).map_err(|faults| {
        Error::Input(format!("--schedule {}: {}", pipeline.schedule, list_faults(&faults)))
    })
}

fn generate(config: &Config, pipeline: &PipelineConfig) -> Result<Schedule> {
    let (ranks, micro_batches) = (config.mesh.degree(AxisId::Pp), config.micro_batches);
    let chunks = pipeline.virtual_stages.unwrap_or(1);
    let ScheduleSource::Named(kind) = pipeline.schedule else {
        unreachable!("a schedule from a file is not generated");
    };
    let passes = ranks.saturating_mul(chunks).saturating_mul(micro_batches);
    if passes > MAX_FORWARD_PASSES {
        return Err(Error::Input(format!(
            "--schedule {kind}: pp={ranks} of --mesh x {chunks} stages per rank x --micro-batches {micro_batches} are \
             {passes} forward passes per step, more than {MAX_FORWARD_PASSES}; use fewer micro-batches"
        )));
    }
    kind.generate(ranks, chunks, micro_batches)
        .map_err(|error| Error::Input(format!("--schedule {kind}: {error}")))
}

fn read_schedule(config: &Config, path: &Path) -> Result<Schedule> {
    let refuse =
        |problem: String| Err(Error::Input(format!("--schedule {}: {problem}", path.display())));
    let text = match read_text(path) {
        Ok(text) => text,
        Err(error) => return refuse(format!("cannot read it: {error}")),
    };
    let schedule = match csv::read(&text) {
        Ok(schedule) => schedule,
        Err(error) => return refuse(error.to_string()),
    };
    let (ranks, micro_batches) = (config.mesh.degree(AxisId::Pp), config.micro_batches);
    if schedule.ranks.len() != ranks {
        let rows = schedule.ranks.len();
        return refuse(format!(
            "it has {}, one per rank; use --mesh pp={rows}, not pp={ranks}",
            counted(rows, "row")
        ));
    }
    if schedule.micro_batches != micro_batches {
        let scheduled = schedule.micro_batches;
        return refuse(format!(
            "it has {}; use --micro-batches {scheduled}, not {micro_batches}",
            counted(scheduled, "micro-batch")
        ));
    }
    Ok(schedule)
}

/// Lists faults of a schedule, as far as one message can hold them.
pub fn list_faults(faults: &[Finding]) -> String {
    if let [fault] = faults {
        return fault.to_string();
    }
    let listed: String =
        faults.iter().take(MAX_LISTED_FAULTS).map(|fault| format!("\n  - {fault}")).collect();
    let rest = faults.len().saturating_sub(MAX_LISTED_FAULTS);
    let more = if rest > 0 { format!("\n  and {rest} more") } else { String::new() };
    format!("{} faults:{listed}{more}", faults.len())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[track_caller]
    fn open(line: &str) -> Result<Verified> {
        let config = Config::parse(format!("t {line}").split(' ')).unwrap();
        open_schedule(&config, config.pipeline.as_ref().expect("a pp axis"))
    }

    #[track_caller]
    fn refusal(line: &str) -> String {
        open(line).unwrap_err().to_string()
    }

    #[test]
    fn named_schedules_are_generated() {
        let of = |line: &str| open(line).unwrap().lowered().clone();
        let schedule = of("--mesh pp=2 --micro-batches 5");
        assert_eq!((schedule.ranks.len(), schedule.stages(), schedule.micro_batches), (2, 2, 5));
        let schedule = of("--mesh pp=2,tp=2 --schedule interleaved --virtual-stages 3");
        assert_eq!((schedule.ranks.len(), schedule.stages()), (2, 6));
        let text = refusal("--mesh pp=1024 --micro-batches 1000000");
        assert!(text.contains("forward passes per step, more than 1048576"), "{text}");
    }

    #[test]
    fn schedule_files_are_checked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.csv");
        let path = path.to_str().unwrap();
        let write = |text: &str| fs::write(path, text).unwrap();
        let line = format!("--mesh pp=2 --micro-batches 2 --schedule {path}");
        let text = refusal(&line);
        assert!(text.contains("run.csv: cannot read it: No such file"), "{text}");
        write("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
        assert_eq!(open(&line).unwrap().lowered().stages(), 2);
        let text = refusal(&format!("--mesh pp=4 --micro-batches 2 --schedule {path}"));
        assert!(text.contains("it has 2 rows, one per rank; use --mesh pp=2, not pp=4"), "{text}");
        let text = refusal(&format!("--mesh pp=2 --micro-batches 4 --schedule {path}"));
        assert!(text.contains("use --micro-batches 2, not 4"), "{text}");
        write("0F0,0B0,0F1,0B1\n1F0,1F1,1B1\n");
        let text = refusal(&line);
        assert!(text.contains("run.csv: ") && text.contains("rank 1"), "{text}");
        write("0F0,0X1\n1F0\n");
        let text = refusal(&line);
        assert!(text.contains("rank 0, action 1"), "{text}");
    }
}
