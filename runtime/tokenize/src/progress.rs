//! Progress of tokenization on stderr: a bar on a terminal, plain lines elsewhere.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Minimum time between two plain lines, and before the first, so that short texts print none.
const LINE_EVERY: Duration = Duration::from_secs(2);

/// Shows the amount of tokenized text and the rate.
pub struct TokenizeProgress {
    /// `None` if stderr is not a terminal.
    bar: Option<ProgressBar>,
    bytes: Option<u64>,
    start: Instant,
    last_line: Instant,
}

impl TokenizeProgress {
    /// Creates the progress of `bytes` of text, if their number is known.
    pub fn new(bytes: Option<u64>) -> TokenizeProgress {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{bar:20} {wide_msg}");
            let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
            let bar = bytes.map_or_else(ProgressBar::no_length, ProgressBar::new);
            bar.with_style(style)
        });
        let start = Instant::now();
        TokenizeProgress { bar, bytes, start, last_line: start }
    }

    /// Shows that `bytes` are done.
    pub fn show_progress(&mut self, bytes: u64) {
        let line = describe(bytes, self.bytes, self.start.elapsed());
        if let Some(bar) = &self.bar {
            bar.set_position(bytes);
            bar.set_message(line);
        } else if self.last_line.elapsed() >= LINE_EVERY {
            // A closed or full stderr is no reason to stop.
            let _ = writeln!(std::io::stderr(), "{line}");
            self.last_line = Instant::now();
        }
    }

    /// Removes the bar.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn describe(done: u64, all: Option<u64>, spent: Duration) -> String {
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    let rate = megabytes(done) / spent.as_secs_f64().max(1e-9);
    let of_all = all.map_or(String::new(), |all| format!(" of {:.1}", megabytes(all)));
    format!("tokenized {:.1}{of_all} MB, {rate:.1} MB/s", megabytes(done))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_amount_and_rate() {
        let spent = Duration::from_millis(2500);
        assert_eq!(
            describe(5_000_000, Some(12_340_000), spent),
            "tokenized 5.0 of 12.3 MB, 2.0 MB/s"
        );
        assert_eq!(describe(5_000_000, None, spent), "tokenized 5.0 MB, 2.0 MB/s");
    }
}
