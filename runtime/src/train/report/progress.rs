//! Progress on stderr: a bar on a terminal, plain lines elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::tensor::Rank;
use crate::train::Result;
use crate::train::console::print_line;

use super::observer::{StepObserver, StepReport};

/// Minimum time between two plain lines, so that the log of a fast run stays short.
const LINE_EVERY: Duration = Duration::from_secs(2);

/// Shows step, loss, tokens per second and remaining time.
#[derive(Debug)]
pub struct Progress {
    /// `None` if stderr is not a terminal.
    bar: Option<ProgressBar>,
    first_step: u64,
    steps: u64,
    start: Instant,
    last_line: Option<Instant>,
}

impl Progress {
    /// Creates the progress of a run from `first_step` (from 0) to `steps`.
    pub fn new(first_step: u64, steps: u64) -> Progress {
        let bar = std::io::stderr().is_terminal().then(|| {
            // A message that does not fit the line is truncated, not wrapped.
            let style = ProgressStyle::with_template("{bar:20} {wide_msg}");
            let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::new(steps).with_style(style).with_position(first_step)
        });
        Progress { bar, first_step, steps, start: Instant::now(), last_line: None }
    }
}

impl StepObserver for Progress {
    fn end(&mut self, report: &StepReport<'_>) -> Result<()> {
        let now = Instant::now();
        let done = report.step;
        let spent = now - self.start;
        let left = remaining_time(
            spent,
            done.saturating_sub(self.first_step),
            self.steps - done.min(self.steps),
        );
        let (balance, rate) = (report.attention_balance, report.tokens_per_s());
        let line = progress_line(done, self.steps, report.loss, balance, rate, left);
        let evaluation = report.evaluation.map(|own| format!("step {done}/{}  {own}", self.steps));
        match &self.bar {
            Some(bar) => {
                bar.set_position(done);
                bar.set_message(line);
                evaluation.into_iter().for_each(|line| bar.println(line));
            }
            None => {
                let due = self.last_line.is_none_or(|last| now - last >= LINE_EVERY);
                if due || done == self.steps {
                    print_line(&line);
                    self.last_line = Some(now);
                }
                evaluation.iter().for_each(|line| print_line(line));
            }
        }
        Ok(())
    }

    /// Ends the bar, and leaves its last state on the terminal.
    fn finish(&mut self, _: &Rank) -> Result<()> {
        if let Some(bar) = &self.bar {
            bar.abandon();
        }
        Ok(())
    }
}

/// Estimates the remaining time; `None` before the first step is done.
fn remaining_time(spent: Duration, done: u64, left: u64) -> Option<Duration> {
    (done > 0).then(|| Duration::from_secs_f64(spent.as_secs_f64() / done as f64 * left as f64))
}

fn progress_line(
    done: u64,
    steps: u64,
    loss: f64,
    attention_balance: Option<f64>,
    tokens_per_s: f64,
    left: Option<Duration>,
) -> String {
    let balance = attention_balance.map(|balance| format!("attention balance {balance:.2}  "));
    let (balance, rate) = (balance.unwrap_or_default(), short_rate(tokens_per_s));
    let left = left.map_or("?".into(), clock_time);
    format!("step {done}/{steps}  loss {loss:.4}  {balance}{rate}tokens/s  {left} left")
}

/// Formats a rate with at most four digits: `812 `, `9.31 k`, `1.20 M`.
fn short_rate(rate: f64) -> String {
    match rate {
        rate if rate >= 1e6 => format!("{:.2} M", rate / 1e6),
        rate if rate >= 1e3 => format!("{:.2} k", rate / 1e3),
        rate => format!("{rate:.0} "),
    }
}

/// Formats a duration: `0:05`, `12:30`, `3:02:01`.
fn clock_time(time: Duration) -> String {
    let seconds = time.as_secs_f64().round() as u64;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        hours => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_step_loss_rate_and_time() {
        let left = remaining_time(Duration::from_secs(20), 10, 90);
        assert_eq!(left, Some(Duration::from_secs(180)));
        assert_eq!(
            progress_line(10, 100, 2.345678, None, 9312.0, left),
            "step 10/100  loss 2.3457  9.31 ktokens/s  3:00 left"
        );
        assert_eq!(
            progress_line(10, 100, 2.345678, Some(0.9251), 9312.0, left),
            "step 10/100  loss 2.3457  attention balance 0.93  9.31 ktokens/s  3:00 left"
        );
        assert_eq!(
            progress_line(0, 5, f64::NAN, None, 812.4, None),
            "step 0/5  loss NaN  812 tokens/s  ? left"
        );
        assert_eq!(clock_time(Duration::from_secs(3 * 3600 + 121)), "3:02:01");
        assert_eq!(short_rate(1_204_000.0), "1.20 M");
    }
}
