//! What a run came to, and how the user is told.

use std::io::Write;
use std::time::Duration;

use super::config::Config;
use super::plan::{Plan, counted, on_mesh};

/// What a run came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// Loss of every step that was run.
    pub losses: Vec<f64>,
    /// Gradient norm, before clipping, of every step that was run.
    pub grad_norms: Vec<f64>,
    /// Median of tokens per second over all ranks.
    pub tokens_per_s: f64,
    /// Time of all steps, with what they wrote.
    pub elapsed: Duration,
    /// The prompt's tokens followed by the sampled ones.
    pub sample: Vec<u32>,
    /// Number of prompt tokens in `sample`.
    pub prompt_len: usize,
}

impl Summary {
    /// Prints to stdout. Whoever reads may have stopped reading, as `| head` does: that is no failure of the run.
    pub(super) fn print(&self, plan: &Plan) {
        let _ = std::io::stdout().write_all(self.text(plan).as_bytes());
    }

    fn text(&self, plan: &Plan) -> String {
        let [first, last] =
            [self.losses.first(), self.losses.last()].map(|loss| loss.copied().unwrap_or(f64::NAN));
        let mut text = format!(
            "{} on {} in {:.1} s: loss {first:.4} to {last:.4}, {:.0} tokens/s\n",
            counted(self.losses.len(), "step"),
            on_mesh(&plan.config),
            self.elapsed.as_secs_f64(),
            self.tokens_per_s
        );
        for line in written(&plan.config) {
            text += &format!("{line}\n");
        }
        if self.sample.len() > self.prompt_len {
            let is_text = plan.dataset.file().encoding().is_text();
            let (prompt, continuation) = self.sample.split_at(self.prompt_len);
            text += &format!("--- prompt ---\n{}\n", readable(prompt, is_text));
            text += &format!("--- continuation ---\n{}\n", readable(continuation, is_text));
        }
        text
    }
}

/// What a run with these settings has written, and what it is good for.
fn written(config: &Config) -> Vec<String> {
    let saved = config.save.as_ref().map(|save| {
        let latest = save.dir.join("latest");
        format!("saved {0}; to go on: --resume {0} and a larger --steps", latest.display())
    });
    let exported = config.export_hf.as_ref().map(|folder| format!("exported {}", folder.display()));
    saved.into_iter().chain(exported).collect()
}

/// Tokens as text where they are bytes, else as numbers. Bytes that are no text, and ids that are no bytes, become
/// replacement characters, and so do control characters, which a terminal would obey.
fn readable(tokens: &[u32], is_text: bool) -> String {
    if !is_text {
        return tokens.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    }
    // 0xff is no part of any UTF-8 text.
    let bytes: Vec<u8> = tokens.iter().map(|id| u8::try_from(*id).unwrap_or(0xff)).collect();
    let visible = |c: char| c == '\n' || c == '\t' || !c.is_control();
    String::from_utf8_lossy(&bytes)
        .chars()
        .map(|c| if visible(c) { c } else { char::REPLACEMENT_CHARACTER })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_that_are_no_text_are_replaced() {
        assert_eq!(readable(&[104, 105, 10, 300, 27, 255], true), "hi\n\u{fffd}\u{fffd}\u{fffd}");
        assert_eq!(readable(&[104, 300], false), "104 300");
    }
}
