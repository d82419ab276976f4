//! The flags by name, and advice about unknown ones.

use super::flags::Flag;
use super::other_names::OtherName;
use super::settings::FLAGS;

impl Flag {
    /// Returns the flag called `name`, written with dashes.
    pub fn find(name: &str) -> Option<&'static Flag> {
        FLAGS.iter().find(|flag| flag.name == name)
    }

    /// Describes an unknown `flag` or `key`, with a suggestion; `prefix` is put before names.
    pub fn describe_unknown(what: &str, name: &str, prefix: &str) -> String {
        let dashed = name.replace('_', "-");
        // Some trainers have sections, as in `--training.seq_len`.
        let (section, own) = name.rsplit_once('.').unwrap_or(("", name));
        let (lower, own_dashed) = (own.to_lowercase(), own.replace('_', "-"));
        if let Some(other) = OtherName::find(&lower) {
            return format!("unknown {what} `{prefix}{name}`; {}", other.advice(prefix));
        }
        if !section.is_empty() && Flag::find(&own_dashed).is_some() {
            return format!("unknown {what} `{prefix}{name}`; here it is `{prefix}{own_dashed}`");
        }
        match Flag::nearest(&dashed, FLAGS.iter().map(|flag| flag.name)) {
            Some(near) => {
                format!("unknown {what} `{prefix}{name}`; did you mean `{prefix}{near}`?")
            }
            None => format!("unknown {what} `{prefix}{name}`; --help lists them all"),
        }
    }
}
