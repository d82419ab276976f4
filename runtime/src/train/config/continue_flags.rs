//! The flags that continue a run from its checkpoint, as words for a shell. All other settings are in the
//! checkpoint.

use std::path::Path;

use super::Config;

/// Returns the flags that train as many steps again from `checkpoint`, and save and report as this run.
pub fn continuing_flags(config: &Config, checkpoint: &Path) -> String {
    let mut line = Line::resuming(checkpoint);
    let steps = config.steps.saturating_mul(2).min(u64::from(u32::MAX));
    line.value("steps", Some(steps));
    // A run that was stopped early has as many evaluations without a lower loss as that allows.
    let early_stop = config.validation.as_ref().and_then(|validation| validation.early_stop);
    line.value("early-stop", early_stop.map(|evaluations| evaluations.saturating_mul(2)));
    if let Some(save) = &config.save {
        line.path("save", Some(&save.dir));
        line.value("save-every", save.every);
        line.switch("save-async", save.asynchronous);
        line.value("keep", save.keep);
        line.switch("keep-best", save.best);
        line.path("save-cache", config.save_cache.as_deref());
    }
    line.path("metrics", config.metrics.as_deref());
    line.path("tensorboard", config.tensorboard.as_deref());
    line.path("prometheus", config.prometheus.as_deref());
    line.machine(config);
    line.0
}

/// Returns the flags that export the model of `checkpoint`, which has `steps` steps, to `folder`.
pub fn exporting_flags(config: &Config, checkpoint: &Path, steps: u64, folder: &Path) -> String {
    let mut line = Line::resuming(checkpoint);
    // The run that has saved the checkpoint may have been one of more steps.
    line.value("steps", Some(steps));
    line.path("export-hf", Some(folder));
    line.value("export-dtype", config.export_dtype);
    line.value("export-shard-size", config.export_shard_size);
    line.machine(config);
    line.0
}

/// A line of words.
struct Line(String);

impl Line {
    fn resuming(checkpoint: &Path) -> Line {
        Line(format!("--resume {}", quote(&checkpoint.to_string_lossy())))
    }

    fn value(&mut self, flag: &str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.0 += &format!(" --{flag} {}", quote(&value.to_string()));
        }
    }

    fn path(&mut self, flag: &str, path: Option<&Path>) {
        self.value(flag, path.map(Path::to_string_lossy));
    }

    fn switch(&mut self, flag: &str, is_on: bool) {
        if is_on {
            self.0 += &format!(" --{flag}");
        }
    }

    /// Adds the settings of one machine, which a checkpoint does not keep.
    fn machine(&mut self, config: &Config) {
        self.path("data-cache", config.data_cache.as_deref());
        self.value("data-cache-size", config.data_cache_size);
        self.value("threads", config.threads);
        self.value("memory-limit", config.memory_limit);
        self.switch("nondeterministic", config.nondeterministic);
        self.switch("no-graphs", config.device == super::DeviceChoice::Cuda && !config.graphs);
    }
}

/// Returns a word that a shell takes as this text.
fn quote(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./=:,@%+".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_one_machine_and_outputs_are_repeated() {
        let of = |words: &[&str]| {
            let words = ["t", "--steps", "5"].iter().chain(words);
            let config = Config::parse(words).unwrap();
            continuing_flags(&config, Path::new("a b/latest"))
        };
        assert_eq!(of(&[]), "--resume 'a b/latest' --steps 10");
        assert_eq!(
            of(&[
                "--save",
                "it's",
                "--save-every",
                "2",
                "--save-async",
                "--keep",
                "3",
                "--metrics",
                "m.jsonl",
                "--tensorboard",
                "tb",
                "--threads",
                "2"
            ]),
            "--resume 'a b/latest' --steps 10 --save 'it'\\''s' --save-every 2 --save-async --keep 3 --metrics m.jsonl \
             --tensorboard tb --threads 2"
        );
    }
}
