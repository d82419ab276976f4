//! Numbers of bytes as text.

use std::fmt;
use std::str::FromStr;

/// A number of bytes, printed as `812 B`, `1.50 GB` or `20.0 TB`, and parsed from `1000000`, `2GB` or `1.5 GiB`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bytes(pub f64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut scaled, mut units) = (self.0, ["B", "kB", "MB", "GB", "TB", "PB", "EB"].iter());
        let mut unit = units.next();
        // Numbers that would be rounded up to 1000 use the next unit.
        while scaled >= 999.5
            && let Some(next) = units.next()
        {
            scaled /= 1e3;
            unit = Some(next);
        }
        let unit = unit.unwrap_or(&"B");
        let decimals = match scaled {
            _ if *unit == "B" => 0,
            scaled if scaled < 9.995 => 2,
            scaled if scaled < 99.95 => 1,
            _ => 0,
        };
        f.pad(&format!("{scaled:.decimals$} {unit}"))
    }
}

impl FromStr for Bytes {
    type Err = ();

    fn from_str(text: &str) -> Result<Bytes, ()> {
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let scale: u64 = match unit.trim_start() {
            "" | "B" => 1,
            "kB" | "KB" => 1_000,
            "MB" => 1_000_000,
            "GB" => 1_000_000_000,
            "TB" => 1_000_000_000_000,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            "TiB" => 1 << 40,
            _ => return Err(()),
        };
        let number: f64 = number.parse().map_err(drop)?;
        let bytes = number * scale as f64;
        if bytes < u64::MAX as f64 { Ok(Bytes(bytes)) } else { Err(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_three_digits() {
        for (bytes, text) in [
            (0.0, "0 B"),
            (812.0, "812 B"),
            (999.4, "999 B"),
            (1000.0, "1.00 kB"),
            (1.5e9, "1.50 GB"),
            (12_345.0, "12.3 kB"),
            (999_400.0, "999 kB"),
            (999_600.0, "1.00 MB"),
            (2e13, "20.0 TB"),
            (3e22, "30000 EB"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
        assert_eq!(format!("{:>8}|", Bytes(5.0)), "     5 B|");
    }

    #[test]
    fn bytes_are_parsed_with_their_unit() {
        for (text, bytes) in [("1000000", 1e6), ("2GB", 2e9), ("1.5 GiB", 1610612736.0)] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["", "GB", "1.2.3GB", "-1GB", "2Gb", "16777216TiB"] {
            assert_eq!(text.parse::<Bytes>(), Err(()), "{text}");
        }
    }
}
