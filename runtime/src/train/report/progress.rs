//! Progress on stderr: lines of losses, and on a terminal a bar below them.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::tensor::Rank;
use crate::train::Result;
use crate::train::console::print_line;

use super::observer::{StepObserver, StepReport};

/// Shows step, loss, tokens per second, and the time that has passed and that remains.
#[derive(Debug)]
pub struct Progress {
    /// `None` if stderr is not a terminal.
    bar: Option<ProgressBar>,
    first_step: u64,
    steps: u64,
    /// Minimum time between two lines.
    line_every: Duration,
    start: Instant,
    last_line: Option<Instant>,
    /// Tokens and seconds of the steps since the last line.
    since_line: (u64, f64),
}

impl Progress {
    /// Creates the progress of a run from `first_step` (from 0) to `steps`, with lines at least `line_every` apart.
    pub fn new(first_step: u64, steps: u64, line_every: Duration) -> Progress {
        let bar = std::io::stderr().is_terminal().then(|| {
            // A message that does not fit the line is truncated, not wrapped.
            let style = ProgressStyle::with_template("{bar:20} {wide_msg}");
            let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::new(steps).with_style(style).with_position(first_step)
        });
        let (start, last_line, since_line) = (Instant::now(), None, (0, 0.0));
        Progress { bar, first_step, steps, line_every, start, last_line, since_line }
    }

    fn print(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.println(line),
            None => print_line(line),
        }
    }
}

impl StepObserver for Progress {
    fn end(&mut self, report: &StepReport<'_>) -> Result<()> {
        let now = Instant::now();
        let (done, spent) = (report.step, now - self.start);
        let left = remaining_time(
            spent,
            done.saturating_sub(self.first_step),
            self.steps - done.min(self.steps),
        );
        let (tokens, seconds) = self.since_line;
        self.since_line = (tokens + report.positions, seconds + report.seconds);
        let (tokens, seconds) = self.since_line;
        let (balance, rate) = (report.attention_balance, tokens as f64 / seconds);
        let own = report.own.to_vec();
        let numbers = (report.loss, &own[..], balance);
        let line = progress_line([done, self.steps], numbers, rate, (spent, left));
        if let Some(bar) = &self.bar {
            bar.set_position(done);
            bar.set_message(line.clone());
        }
        let is_due = self.last_line.is_none_or(|last| now - last >= self.line_every);
        if is_due || done == self.steps {
            self.print(&line);
            (self.last_line, self.since_line) = (Some(now), (0, 0.0));
        }
        if let Some(own) = report.evaluation {
            self.print(&format!("step {done}/{}  {own}", self.steps));
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
    [done, steps]: [u64; 2],
    (loss, own, attention_balance): (f64, &[(String, f64)], Option<f64>),
    tokens_per_s: f64,
    (spent, left): (Duration, Option<Duration>),
) -> String {
    let balance = attention_balance.map(|balance| format!("attention balance {balance:.2}  "));
    let (balance, rate) = (balance.unwrap_or_default(), short_rate(tokens_per_s));
    let own: String =
        own.iter().map(|(name, value)| format!("{name} {}  ", short_number(*value))).collect();
    let (spent, left) = (clock_time(spent), left.map_or("?".into(), clock_time));
    format!(
        "step {done}/{steps}  loss {loss:.4}  {own}{balance}{rate}tokens/s  {spent}, {left} left"
    )
}

/// Formats a number with four digits after the point, if these show it.
fn short_number(number: f64) -> String {
    match number.abs() {
        size if size == 0.0 || (1e-2..1e6).contains(&size) || !size.is_finite() => {
            format!("{number:.4}")
        }
        _ => format!("{number:.3e}"),
    }
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
        let spent = Duration::from_secs(20);
        let left = remaining_time(spent, 10, 90);
        assert_eq!(left, Some(Duration::from_secs(180)));
        let line =
            |balance| progress_line([10, 100], (2.345678, &[], balance), 9312.0, (spent, left));
        assert_eq!(line(None), "step 10/100  loss 2.3457  9.31 ktokens/s  0:20, 3:00 left");
        assert_eq!(
            line(Some(0.9251)),
            "step 10/100  loss 2.3457  attention balance 0.93  9.31 ktokens/s  0:20, 3:00 left"
        );
        assert_eq!(
            progress_line([0, 5], (f64::NAN, &[], None), 812.4, (Duration::ZERO, None)),
            "step 0/5  loss NaN  812 tokens/s  0:00, ? left"
        );
        let own = [("acc".to_owned(), 0.51234), ("noise".to_owned(), 1.5e-7)];
        let numbers = (0.0, &own[..], Some(1.0));
        assert_eq!(
            progress_line([1, 5], numbers, 812.4, (Duration::ZERO, None)),
            "step 1/5  loss 0.0000  acc 0.5123  noise 1.500e-7  attention balance 1.00  812 tokens/s  0:00, ? left"
        );
        assert_eq!(clock_time(Duration::from_secs(3 * 3600 + 121)), "3:02:01");
        assert_eq!(short_rate(1_204_000.0), "1.20 M");
    }
}
