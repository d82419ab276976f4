//! `--on-nan`: a step whose loss or gradient norm is infinite or NaN.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

/// The treatment of a step whose loss or gradient norm is infinite or NaN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnNan {
    /// The run ends, and the state before the step is saved.
    Stop,
    /// The update of the step is left out. When this many steps in a row are such, the run ends.
    Skip(NonZeroU64),
}

impl FromStr for OnNan {
    type Err = String;

    fn from_str(text: &str) -> Result<OnNan, String> {
        let wrong = || {
            format!(
                "must be `stop`, or `skip=N` with the number of steps in a row that end the run, at least 1, not \
                 `{text}`"
            )
        };
        match text.split_once('=') {
            None if text == "stop" => Ok(OnNan::Stop),
            Some(("skip", number)) if number.starts_with(|first: char| first.is_ascii_digit()) => {
                number.parse().map(OnNan::Skip).map_err(|_| wrong())
            }
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for OnNan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OnNan::Stop => f.write_str("stop"),
            OnNan::Skip(limit) => write!(f, "skip={limit}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_back() {
        for text in ["stop", "skip=1", "skip=20"] {
            assert_eq!(text.parse::<OnNan>().unwrap().to_string(), text);
        }
        for text in [
            "", "Stop", "stop=1", "skip", "skip=", "skip=0", "skip=-1", "skip=+1", "skip=1.5",
            "skip=1=1",
        ] {
            let problem = text.parse::<OnNan>().unwrap_err();
            assert!(problem.contains(&format!("not `{text}`")), "{problem}");
        }
    }
}
