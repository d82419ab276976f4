//! The metrics file: one JSON object per step, one step per line.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::Serialize;

use crate::os::ClaimedFile;
use crate::train::console::print_line;

use super::metrics_lines::{KnownSteps, check_lines, read_kept};
use super::report_file::{MetricsError, ReportFile};

/// The metrics of one step. JSON has no infinity and no NaN; they are written as `null`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepMetrics {
    /// The step, from 1: the number of steps that are done after it.
    pub step: u64,
    /// Mean loss over the tokens of the step, in nats, before its update.
    pub loss: f64,
    /// Norm of the global gradient before clipping.
    pub grad_norm: f64,
    /// Gradient noise scale in sequences, by the steps so far, with `--noise-scale`; not there if it cannot be told
    /// from them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub noise_scale: Option<f64>,
    /// Learning rate of the step's update.
    pub lr: f64,
    /// Tokens trained on in this step, over all ranks.
    pub tokens: u64,
    /// Epochs of the data after the step: samples that were trained on, by the samples of the data, if these are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<f64>,
    /// Time at the end of the step, in seconds since 1970 (Unix time).
    pub time: f64,
    /// Duration in milliseconds.
    pub step_ms: f64,
    /// Tokens per second, over all ranks.
    pub tokens_per_s: f64,
    /// Model FLOPs utilization: a fraction of the machine's peak.
    pub mfu: f64,
    /// Hardware FLOPs utilization: `mfu`, with recomputed FLOPs added.
    pub hfu: f64,
    /// The peak that both refer to, in FLOP/s of all ranks together.
    pub peak_flops: f64,
    /// Peak memory of any rank so far in bytes, by category.
    pub peak_bytes: BTreeMap<&'static str, u64>,
    /// Bytes that rank 0 sent in this step, by mesh axis (`dp x tp` for collectives over both).
    pub comm_bytes: BTreeMap<String, u64>,
    /// Bubble: idle fraction of the time of the pipeline schedule, if the mesh has a `pp` axis.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bubble: Option<f64>,
    /// Fraction of the tokens of the step's rows that hold no document, if rows are packed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub padding: Option<f64>,
    /// Pairs of a query and a key that it sees: the mean over the ranks of `cp` by the most that one of them has, if
    /// the mesh has a `cp` axis.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attention_balance: Option<f64>,
    /// Goodput: fraction of the time since the start of the run, restarts included, that its steps took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goodput: Option<f64>,
    /// Milliseconds that training has waited for saves since the last line, if there were some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub save_ms: Option<f64>,
    /// Bytes of the checkpoints that were completed since the last line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub save_bytes: Option<u64>,
    /// The step after which a checkpoint could not be saved, if the failure was detected since the last line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub save_failed: Option<u64>,
    /// Steps of the run so far whose updates were left out, with `--on-nan skip=N`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped: Option<u64>,
    /// Mean loss over the targets of the validation data after the step, in nats, if it was evaluated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eval_loss: Option<f64>,
    /// Exponential of `eval_loss`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eval_perplexity: Option<f64>,
    /// `eval_loss` in bits for each byte of the text, if the tokenizer is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eval_bits_per_byte: Option<f64>,
    /// `loss.NAME` and `epoch.NAME` of each source of a mixture: the mean loss over its targets of the step, if it has
    /// some, and the epochs of the source after the step.
    #[serde(flatten)]
    pub sources: BTreeMap<String, f64>,
    /// Metrics of the program.
    #[serde(flatten)]
    pub own: BTreeMap<String, f64>,
}

/// Returns the time in seconds since 1970.
pub fn unix_time() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// An open metrics file.
#[derive(Debug)]
pub struct MetricsFile {
    file: ReportFile,
    /// Seconds of the steps before this run, if the file has all of them.
    pub(super) earlier_seconds: Option<f64>,
}

impl MetricsFile {
    /// The name of the file in messages of a program without the flag `--metrics`.
    pub(in crate::train) const NAME: &'static str = "metrics file";

    /// Opens the file at `path` for a run. One from the beginning moves the lines of an earlier one aside, to `NAME.1`
    /// and so on. A resumed run continues the file: lines of later steps, which will be repeated, are removed, as is a
    /// torn last line. If it has lines of another run, a copy of it is kept as `NAME.1` and so on.
    ///
    /// # Errors
    /// A file with other content than metrics, one to which another run writes, and one that cannot be created, read or
    /// written.
    pub fn open(path: &Path, run: KnownSteps) -> Result<MetricsFile, MetricsError> {
        ClaimedMetrics::claim(MetricsFile::NAME, path, run)?.open()
    }

    /// Writes one line and flushes it; nothing, after a line that could not be written.
    ///
    /// # Errors
    /// A line that cannot be written.
    pub fn write_step(&mut self, step: &StepMetrics) -> Result<(), MetricsError> {
        self.file.append(|| {
            let mut line = serde_json::to_vec(step)?;
            line.push(b'\n');
            Ok(line)
        })
    }
}

/// A metrics file that is locked for a run, and has not been changed.
#[derive(Debug)]
pub struct ClaimedMetrics {
    claimed: ClaimedFile,
    flag: &'static str,
    path: PathBuf,
    run: KnownSteps,
}

impl ClaimedMetrics {
    /// Checks that a run can write the file at `path`, which `flag` names: that every line has the metrics of a step,
    /// and the last one is at most torn.
    ///
    /// # Errors
    /// A file with other lines, one to which another run writes, and one that cannot be read.
    pub fn claim(
        flag: &'static str,
        path: &Path,
        run: KnownSteps,
    ) -> Result<ClaimedMetrics, MetricsError> {
        let path = path.to_owned();
        let mut action = "open";
        let claimed = ClaimedFile::claim(&path, |file| {
            action = if run.done == 0 { "replace" } else { "continue" };
            check_lines(file)
        });
        match claimed {
            Ok(claimed) => Ok(ClaimedMetrics { claimed, flag, path, run }),
            Err(error) => Err(MetricsError::of(flag, action, &path)(error)),
        }
    }

    /// Opens the file, as [`MetricsFile::open`].
    ///
    /// # Errors
    /// A file that cannot be created, read or written.
    pub fn open(self) -> Result<MetricsFile, MetricsError> {
        let ClaimedMetrics { claimed, flag, path, run } = self;
        let failed = |action| MetricsError::of(flag, action, &path);
        let (mut kept, mut earlier_seconds) = (0, (run.done == 0).then_some(0.0));
        let file = if run.done == 0 {
            let (file, aside) = claimed.replace().map_err(failed("open"))?;
            if let Some(aside) = aside {
                let aside = aside.display();
                print_line(&format!("{flag}: the metrics of an earlier run are now in {aside}"));
            }
            file
        } else {
            if let Some(file) = claimed.existing() {
                let lines = read_kept(file, run).map_err(failed("read"))?;
                kept = lines.bytes;
                earlier_seconds = lines.seconds.filter(|_| lines.other_run.is_none());
                if let Some(other) = lines.other_run {
                    let copy = claimed.copy_aside().map_err(failed("copy"))?;
                    print_line(&format!(
                        "warning: {flag}: {} has lines that are none of this run ({other}); a copy of it is in {}",
                        path.display(),
                        copy.display()
                    ));
                }
            }
            claimed.keep().map_err(failed("open"))?
        };
        // A pipe or a terminal has no earlier lines.
        if file.metadata().is_ok_and(|data| data.is_file()) {
            file.set_len(kept).map_err(failed("shorten"))?;
        }
        Ok(MetricsFile { file: ReportFile::new(flag, path, file), earlier_seconds })
    }
}

#[cfg(test)]
mod tests {
    use super::super::own_metrics::TRAINER_KEYS;
    use super::*;

    fn step(step: u64, loss: f64) -> StepMetrics {
        StepMetrics {
            step,
            loss,
            grad_norm: 0.5,
            lr: 1e-3,
            tokens: 64,
            epoch: Some(0.25),
            time: 1.8e9,
            step_ms: 12.5,
            tokens_per_s: 5120.0,
            mfu: 0.25,
            hfu: 0.3,
            peak_flops: 2e11,
            peak_bytes: BTreeMap::from([("parameters", 4096), ("gradients", 2048)]),
            comm_bytes: BTreeMap::from([("dp".into(), 128), ("tp".into(), 0)]),
            bubble: None,
            padding: None,
            attention_balance: None,
            goodput: None,
            save_ms: None,
            save_bytes: None,
            save_failed: None,
            skipped: None,
            noise_scale: None,
            eval_loss: None,
            eval_perplexity: None,
            eval_bits_per_byte: None,
            sources: BTreeMap::new(),
            own: BTreeMap::new(),
        }
    }

    fn lines(path: &Path) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn lines_have_the_keys_of_the_contract() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.jsonl");
        let mut file = MetricsFile::open(&path, run(0)).unwrap();
        file.write_step(&step(1, 5.5)).unwrap();
        let object = &lines(&path)[0];
        let mut keys: Vec<_> = object.as_object().unwrap().keys().map(String::as_str).collect();
        keys.sort_unstable();
        assert_eq!(
            keys.join(" "),
            "comm_bytes epoch grad_norm hfu loss lr mfu peak_bytes peak_flops step step_ms time tokens tokens_per_s"
        );
        assert_eq!(object["loss"], 5.5);
        assert_eq!(object["peak_bytes"]["gradients"], 2048);
        assert_eq!(object["comm_bytes"]["dp"], 128);
    }

    #[test]
    fn names_of_a_program_are_none_of_these() {
        let whole = StepMetrics {
            bubble: Some(0.0),
            padding: Some(0.0),
            attention_balance: Some(1.0),
            goodput: Some(0.9),
            save_ms: Some(1.0),
            save_bytes: Some(1),
            save_failed: Some(1),
            skipped: Some(1),
            noise_scale: Some(1.0),
            eval_loss: Some(0.0),
            eval_perplexity: Some(1.0),
            eval_bits_per_byte: Some(0.0),
            own: BTreeMap::from([("grad_noise".to_owned(), f64::NAN)]),
            ..step(1, 1.0)
        };
        let text = serde_json::to_string(&whole).unwrap();
        assert!(text.starts_with("{\"step\":1,\"loss\":1.0,"), "{text}");
        let object: serde_json::Map<_, _> = serde_json::from_str(&text).unwrap();
        assert!(object["grad_noise"].is_null());
        let mut keys: Vec<_> = object.keys().map(String::as_str).collect();
        keys.retain(|key| *key != "grad_noise");
        let mut known = TRAINER_KEYS.to_vec();
        keys.sort_unstable();
        known.sort_unstable();
        assert_eq!(keys, known);
    }

    #[test]
    fn non_finite_numbers_are_null() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.jsonl");
        let mut file = MetricsFile::open(&path, run(0)).unwrap();
        for loss in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            file.write_step(&step(1, loss)).unwrap();
        }
        assert!(lines(&path).iter().all(|line| line["loss"].is_null()));
    }

    /// A run of 5 steps after `done` steps.
    fn run(done: u64) -> KnownSteps {
        KnownSteps { done, total: 5, tokens: Some(64) }
    }

    fn steps(path: &Path) -> Vec<u64> {
        lines(path).iter().map(|line| line["step"].as_u64().unwrap()).collect()
    }

    #[test]
    fn resumed_runs_continue_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.jsonl");
        let mut file = MetricsFile::open(&path, run(0)).unwrap();
        (1..=5).for_each(|s| file.write_step(&step(s, 1.0)).unwrap());
        file.file.append(|| Ok(b"{\"step\": 6, \"lo".to_vec())).unwrap();
        drop(file);

        let mut file = MetricsFile::open(&path, run(3)).unwrap();
        file.write_step(&step(4, 2.0)).unwrap();
        assert_eq!(steps(&path), [1, 2, 3, 4]);
        assert_eq!(lines(&path)[3]["loss"], 2.0);
        let text = MetricsFile::open(&path, run(3)).unwrap_err().to_string();
        assert!(text.contains("m.jsonl: another run writes to it"), "{text}");
        drop(file);

        let mut file = MetricsFile::open(&path, run(0)).unwrap();
        file.write_step(&step(1, 1.0)).unwrap();
        assert_eq!(steps(&path), [1]);
        assert_eq!(steps(&dir.path().join("m.jsonl.1")), [1, 2, 3, 4]);
    }

    /// A tool that rotates logs, such as `logrotate` with `copytruncate`.
    #[test]
    fn a_file_that_is_shortened_meanwhile_has_no_gap() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.jsonl");
        let mut file = MetricsFile::open(&path, run(0)).unwrap();
        (1..=2).for_each(|s| file.write_step(&step(s, 1.0)).unwrap());
        std::fs::File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
        (3..=4).for_each(|s| file.write_step(&step(s, 1.0)).unwrap());
        assert_eq!(steps(&path), [3, 4]);
    }

    /// Lines that this run does not repeat, or would not have.
    #[test]
    fn lines_of_another_run_are_copied() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.jsonl");
        let of = |steps: &[u64], tokens: u64| {
            std::fs::remove_file(&path).unwrap_or_default();
            let mut file = MetricsFile::open(&path, run(0)).unwrap();
            for number in steps {
                file.write_step(&StepMetrics { tokens, ..step(*number, 1.0) }).unwrap();
            }
        };
        for (other, tokens, kept) in [
            (&[1, 2, 3, 4, 5, 6][..], 64, &[1, 2, 3][..]),
            (&[1, 2, 3, 1], 64, &[1, 2, 3, 1]),
            (&[1, 2, 2, 3], 64, &[1, 2, 2, 3]),
            (&[1, 2, 3], 32, &[1, 2, 3]),
            (&[4, 5], 32, &[]),
        ] {
            of(other, tokens);
            let content = std::fs::read(&path).unwrap();
            MetricsFile::open(&path, run(3)).unwrap();
            assert_eq!(steps(&path), kept);
            let copy = dir.path().join("m.jsonl.1");
            assert_eq!(std::fs::read(&copy).unwrap(), content, "{other:?}");
            std::fs::remove_file(copy).unwrap();
        }
        // Lines of the same run, also with a gap from a time without metrics.
        for own in [&[1, 2, 3, 4, 5][..], &[2, 3], &[1, 5], &[]] {
            of(own, 64);
            MetricsFile::open(&path, run(3)).unwrap();
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "{own:?}");
        }
    }

    #[test]
    fn torn_ends_are_mended() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.jsonl");
        let mut file = MetricsFile::open(&path, run(0)).unwrap();
        file.write_step(&step(1, 1.0)).unwrap();
        drop(file);
        let line = std::fs::read(&path).unwrap();
        for torn in ["", "{", "{\"st", "{\"step\":2,\"lo", "\0", "\0\0\0\0", "{\"step\":2,\0\0"] {
            std::fs::write(&path, [&line, torn.as_bytes()].concat()).unwrap();
            let mut file =
                MetricsFile::open(&path, run(1)).unwrap_or_else(|e| panic!("{torn}: {e}"));
            file.write_step(&step(2, 2.0)).unwrap();
            assert_eq!(steps(&path), [1, 2], "{torn:?}");
        }
    }

    #[test]
    fn only_metrics_are_continued_or_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.jsonl");
        let mut file = MetricsFile::open(&path, run(0)).unwrap();
        file.write_step(&step(1, 1.0)).unwrap();
        drop(file);
        let line = std::fs::read(&path).unwrap();
        for other in [
            "a note",
            "a note\n",
            "\n",
            "\0\n",
            "{\"stage\": 1",
            "{\"loss\": 1}\n",
            "{\"step\":2,\"eval\":0.5}\n",
            "{\"step\":2,\"eval\":0.5}",
            "{\"step\":2,\"ev",
            "{\"step\":1,\n",
            "{\"s\0ep",
        ] {
            let content = [&line, other.as_bytes()].concat();
            std::fs::write(&path, &content).unwrap();
            for (done, action) in [(0, "replace"), (1, "continue")] {
                let text = MetricsFile::open(&path, run(done)).unwrap_err().to_string();
                let expected = format!(
                    "cannot {action} {}: its line 2 has no metrics of a step",
                    path.display()
                );
                assert!(text.contains(&expected), "{other}: {text}");
                assert_eq!(std::fs::read(&path).unwrap(), content);
            }
        }
        MetricsFile::open(Path::new("/dev/null"), run(1)).unwrap();
    }

    #[test]
    fn unusable_files_are_named() {
        let error = MetricsFile::open(Path::new("/no/such/folder/m.jsonl"), run(0)).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("metrics file: cannot open /no/such/folder/m.jsonl"), "{text}");
        let full = MetricsFile::open(Path::new("/dev/full"), run(0));
        let text = full.unwrap().write_step(&step(1, 1.0)).unwrap_err().to_string();
        assert!(text.contains("cannot write /dev/full: No space left"), "{text}");
    }
}
