//! The summary of a finished run.

use std::path::Path;
use std::time::Duration;

use crate::backend::Bytes;
use crate::checkpoint::{BestLoss, best_step};
use crate::data::Tokenizer;
use crate::os::print_text;

use crate::train::config::{Config, continuing_flags, exporting_flags};
use crate::train::console::{counted, counted_with_commas};
use crate::train::explain::flops_text;
use crate::train::plan::{Plan, describe_mesh};
use crate::train::{Error, Result};

use super::low_mfu::describe_low_mfu;
use super::{Evaluation, Prediction, Report};

/// Results of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// Loss of every step of this run; empty in a process that does not have rank 0.
    pub losses: Vec<f64>,
    /// Gradient norm before clipping of every step of this run; empty in a process that does not have rank 0.
    pub grad_norms: Vec<f64>,
    /// Evaluations of this run on the validation data.
    pub evaluations: Vec<Evaluation>,
    /// The lowest loss of all evaluations, also of the runs that this one continues; `None` without validation data.
    pub lowest: Option<BestLoss>,
    /// True if `--early-stop` has ended the run before its last step.
    pub stops_early: bool,
    /// Median of tokens per second over all ranks, of the last 4,096 steps; 0 in a process that does not have rank 0.
    pub tokens_per_s: f64,
    /// Time of all steps, including metrics, evaluations and checkpoints.
    pub elapsed: Duration,
    /// The simulated step; `None` if no cluster is known to have the devices of the run, and in a process that does not
    /// have rank 0.
    pub prediction: Option<Prediction>,
    /// Memory, communication and recomputation.
    pub report: Report,
    /// Prompt, followed by the sampled tokens; empty without `--sample-tokens`.
    pub sample: Vec<u32>,
    /// Number of prompt tokens in `sample`.
    pub prompt_len: usize,
}

impl Summary {
    /// Prints to stdout. A closed pipe, as with `| head`, is not a failure of the run.
    pub(in crate::train) fn print(&self, plan: &Plan) -> Result<()> {
        let outputs = || output_lines(&plan.config);
        print_text(&self.as_text(plan)).map_err(|error| Error::Stdout { error, outputs: outputs() })
    }

    fn as_text(&self, plan: &Plan) -> String {
        let [first, last] =
            [self.losses.first(), self.losses.last()].map(|loss| loss.copied().unwrap_or(f64::NAN));
        let mesh = describe_mesh(&plan.config);
        let mut text = match self.losses.len() {
            0 => format!("no step was left to train on {mesh}\n"),
            steps => format!(
                "{} on {mesh} in {:.1} s: loss {first:.4} to {last:.4}, {:.0} tokens/s\n",
                counted(steps, "step"),
                self.elapsed.as_secs_f64(),
                self.tokens_per_s
            ),
        };
        if let (Some(prediction), true) = (&self.prediction, self.tokens_per_s > 0.0) {
            let tokens = (plan.config.batch * plan.config.seq) as f64;
            text += &format!("{}\n", prediction.beside(tokens / self.tokens_per_s));
        }
        text += &self.validation_lines(plan);
        text += &usage_tables(&self.report, self.losses.len());
        text += &self.low_mfu(plan);
        for line in output_lines(&plan.config) {
            text += &format!("{line}\n");
        }
        if self.sample.len() > self.prompt_len {
            let tokenizer = plan.tokenizer.as_ref();
            let (prompt, continuation) = self.sample.split_at(self.prompt_len);
            text += &format!("--- prompt ---\n{}\n", decode_tokens(prompt, tokenizer));
            text += &format!("--- continuation ---\n{}\n", decode_tokens(continuation, tokenizer));
        }
        text
    }
}

impl Summary {
    /// Returns the hint about a low MFU, if the peak is known.
    fn low_mfu(&self, plan: &Plan) -> String {
        let Some(peak) = self.report.peak else { return String::new() };
        let tokens = (plan.config.batch * plan.config.seq * self.losses.len()) as f64;
        describe_low_mfu(&self.report, plan.flops.total() * tokens / peak.flops)
    }

    /// Describes the last evaluation and the lowest loss, and why a run has stopped early.
    fn validation_lines(&self, plan: &Plan) -> String {
        let mut text = String::new();
        if let Some(last) = self.evaluations.last() {
            let bits = last.bits_per_byte.map(|bits| format!(", {bits:.3} bits per byte"));
            text += &format!(
                "validation: loss {:.4} after step {} (perplexity {:.3}{}; {})",
                last.loss,
                last.step,
                last.perplexity(),
                bits.unwrap_or_default(),
                counted_with_commas(last.targets as usize, "target")
            );
            let lowest = self.lowest.filter(|lowest| lowest.step != last.step);
            let best = plan.config.save.as_ref().filter(|save| save.best);
            let lowest = lowest.map(|lowest| {
                let step = lowest.step;
                // The link may be missing, or older, if an earlier part of the run was without --keep-best.
                let best = best.filter(|save| best_step(&save.dir) == Some(step));
                let best = best.map(|save| save.dir.join("best"));
                let export = best.map(|best| {
                    let flags = exporting_flags(&plan.config, &best, step, Path::new("OUT"));
                    format!(", in {}; to export it: {flags}", best.display())
                });
                let export = export.unwrap_or_default();
                format!("; the lowest is {:.4}, after step {step}{export}", lowest.loss)
            });
            text += &(lowest.unwrap_or_default() + "\n");
        }
        let most = plan.config.validation.as_ref().and_then(|validation| validation.early_stop);
        if let (Some(most), true) = (most, self.stops_early) {
            text += &format!(
                "stopped early: {} in a row had no lower loss (--early-stop {most}; a larger number continues the \
                 run)\n",
                counted(most as usize, "evaluation")
            );
        }
        text
    }
}

/// Formats planned and peak memory, planned and measured communication and FLOPs of a step, the fraction of recomputed
/// FLOPs, the implementations of attention, and the peak FLOP/s.
fn usage_tables(report: &Report, steps: usize) -> String {
    let steps = steps.max(1);
    let mut text =
        format!("{:<26}{:>10}{:>10}\n", "memory of the fullest rank", "at least", "peak");
    for used in &report.memory {
        if used.planned > 0 || used.peak > 0 {
            let [planned, peak] = [used.planned, used.peak].map(|bytes| Bytes(bytes as f64));
            text += &format!("  {:<24}{planned:>10}{peak:>10}\n", used.category);
        }
    }
    if !report.communication.is_empty() {
        let head = "communication of a step";
        let [planned, bytes] = ["planned", "bytes"];
        text +=
            &format!("{head:<26}{planned:>10}{bytes:>10}{:>12}{:>10}\n", "overlapped", "exposed");
    }
    for used in &report.communication {
        let bytes = Bytes(used.bytes as f64 / steps as f64);
        let [overlapped, exposed] = [used.overlapped, used.exposed]
            .map(|time| format!("{:.2} ms", time.as_secs_f64() * 1e3 / steps as f64));
        let planned = used.planned.map_or("-".to_owned(), |bytes| Bytes(bytes as f64).to_string());
        text +=
            &format!("  {:<24}{planned:>10}{bytes:>10}{overlapped:>12}{exposed:>10}\n", used.axes);
    }
    if report.flops > 0.0 {
        let planned = report.planned_flops;
        let planned = planned.map(|flops| format!(", {} planned", flops_text(flops)));
        text += &format!(
            "FLOPs of a step: {} on all ranks{}\n",
            flops_text(report.flops / steps as f64),
            planned.unwrap_or_default()
        );
    }
    if report.recomputed > 0.0 {
        text += &format!("{:.1} % of all FLOPs were recomputation\n", report.recomputed * 100.0);
    }
    if let Some(implementations) = &report.attention {
        text += &format!("attention: {implementations}\n");
    }
    if let Some(peak) = &report.peak {
        text += &format!("mfu and hfu are fractions of {peak}\n");
    }
    text
}

/// Lists the files that a run with these settings has written, and their use.
pub fn output_lines(config: &Config) -> Vec<String> {
    let saved = config.save.as_ref().map(|save| {
        let latest = save.dir.join("latest");
        let flags = continuing_flags(config, &latest);
        format!("saved {}; to continue: {flags}", latest.display())
    });
    let exported = config.export_hf.as_ref().map(|folder| format!("exported {}", folder.display()));
    saved.into_iter().chain(exported).collect()
}

/// Decodes tokens as text, or lists them as numbers without a tokenizer. Invalid text becomes replacement characters,
/// and so do control characters, which would affect a terminal.
fn decode_tokens(tokens: &[u32], tokenizer: Option<&Tokenizer>) -> String {
    let Some(tokenizer) = tokenizer else {
        return tokens.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    };
    let visible = |c: char| c == '\n' || c == '\t' || !c.is_control();
    let text = tokenizer.decode(tokens);
    text.chars().map(|c| if visible(c) { c } else { char::REPLACEMENT_CHARACTER }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{AxisUse, MemoryUse, PeakFlops};
    use super::*;

    #[test]
    fn usage_is_shown_in_tables() {
        let used = |category, planned, peak| MemoryUse { category, planned, peak };
        let report = Report {
            memory: vec![
                used("parameters", 4_000_000, 4_000_000),
                used("offloaded", 0, 0),
                used("total", 12_300_000, 13_456_789),
            ],
            communication: vec![AxisUse {
                axes: "dp x fsdp".into(),
                planned: Some(1_250_000),
                bytes: 5_000_000,
                overlapped: Duration::from_millis(25),
                exposed: Duration::from_micros(680),
            }],
            step_time: Duration::ZERO,
            data_wait: Duration::ZERO,
            flops: 6.4e12,
            planned_flops: Some(1.5e12),
            recomputed: 0.25,
            attention: Some("cuDNN".into()),
            peak: Some(PeakFlops { flops: 67e12, is_of_data_sheet: true }),
        };
        let expected = "\
memory of the fullest rank  at least      peak
  parameters                 4.00 MB   4.00 MB
  total                      12.3 MB   13.5 MB
communication of a step      planned     bytes  overlapped   exposed
  dp x fsdp                  1.25 MB   1.25 MB     6.25 ms   0.17 ms
FLOPs of a step: 1.60 T on all ranks, 1.50 T planned
25.0 % of all FLOPs were recomputation
attention: cuDNN
mfu and hfu are fractions of 67.0 TFLOP/s, by the data sheet
";
        assert_eq!(usage_tables(&report, 4), expected);
    }

    #[test]
    fn invalid_text_is_replaced() {
        assert_eq!(
            decode_tokens(&[104, 105, 10, 300, 27, 255], Some(&Tokenizer::Bytes)),
            "hi\n\u{fffd}\u{fffd}\u{fffd}"
        );
        assert_eq!(decode_tokens(&[104, 300], None), "104 300");
    }
}
