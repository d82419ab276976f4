//! Lengths of time as settings: `3h50m`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Units and their seconds, in the order in which a text has them.
const UNITS: [(char, u64); 4] = [('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)];

/// A length of time of at least a second, written as `2d`, `3h50m` or `90s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeLimit(pub Duration);

impl FromStr for TimeLimit {
    type Err = ();

    fn from_str(text: &str) -> Result<TimeLimit, ()> {
        let (mut rest, mut units) = (text, UNITS.iter());
        let mut seconds: u64 = 0;
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or(())?;
            let (number, tail) = rest.split_at(digits);
            let mut tail = tail.chars();
            let unit = tail.next().ok_or(())?;
            // Units that were before this one cannot follow.
            let (_, length) = units.find(|(name, _)| *name == unit).ok_or(())?;
            let number: u64 = number.parse().map_err(drop)?;
            let part = number.checked_mul(*length).ok_or(())?;
            seconds = seconds.checked_add(part).ok_or(())?;
            rest = tail.as_str();
        }
        if seconds == 0 { Err(()) } else { Ok(TimeLimit(Duration::from_secs(seconds))) }
    }
}

impl fmt::Display for TimeLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_secs();
        for (unit, length) in UNITS {
            if rest >= length {
                write!(f, "{}{unit}", rest / length)?;
                rest %= length;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (text, seconds) in
            [("3h50m", 13_800), ("90s", 90), ("2d", 172_800), ("1d2h3m4s", 93_784), ("0h1s", 1)]
        {
            let limit: TimeLimit = text.parse().unwrap();
            assert_eq!(limit.0.as_secs(), seconds, "{text}");
            assert_eq!(limit.to_string().parse(), Ok(limit));
        }
        assert_eq!(TimeLimit(Duration::from_secs(90)).to_string(), "1m30s");
        for text in [
            "",
            "90",
            "h",
            "s1",
            "50m3h",
            "1h1h",
            "1.5h",
            "-3h",
            "3 h",
            "3h ",
            "0s",
            "1w",
            "1H",
            "99999999999999999999s",
            "9999999999999999999d",
        ] {
            assert_eq!(text.parse::<TimeLimit>(), Err(()), "{text}");
        }
    }
}
