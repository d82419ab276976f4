//! The out-of-memory error and the formatting of byte counts.

use super::Category;

/// The error of an allocation beyond the memory limit of a rank, or beyond the memory of the system.
///
/// Model code returns tensors, not `Result`s, so a failed allocation also unwinds the rank with this payload;
/// [`launch`](crate::comm::launch) turns it into an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutOfMemory {
    /// Purpose of the memory.
    pub category: Category,
    /// Requested bytes.
    pub requested: usize,
    /// Memory limit of the rank in bytes; `None` if the system is out of memory.
    pub limit: Option<usize>,
    pub(super) live: [usize; Category::ALL.len()],
}

impl OutOfMemory {
    /// Returns the bytes in use, by category.
    pub fn live(&self) -> impl Iterator<Item = (Category, usize)> {
        Category::ALL.into_iter().zip(self.live)
    }

    /// Unwinds the rank, without a panic message.
    pub(super) fn unwind(self) -> ! {
        std::panic::resume_unwind(Box::new(self))
    }
}

/// `out of memory: 2.10 MB of activations do not fit beside the 7.00 MB in use; the limit is 8.00 MB. In use:`, and a
/// line for each category.
impl std::fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let total: usize = self.live.iter().sum();
        write!(
            f,
            "out of memory: {} of {} do not fit beside the {} in use; ",
            Bytes(self.requested as f64),
            self.category.name(),
            Bytes(total as f64),
        )?;
        match self.limit {
            Some(limit) => write!(f, "the limit is {}", Bytes(limit as f64))?,
            None => f.write_str("the system has no more")?,
        }
        if total > 0 {
            f.write_str(". In use:")?;
        }
        self.live().filter(|(_, bytes)| *bytes > 0).try_for_each(|(category, bytes)| {
            write!(f, "\n  {:<14}{:>10}", category.name(), Bytes(bytes as f64).to_string())
        })
    }
}

/// A byte count for messages: `812 B`, `1.50 GB`, `20.0 TB`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bytes(pub f64);

impl std::fmt::Display for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (mut scaled, mut units) = (self.0, ["B", "kB", "MB", "GB", "TB", "PB", "EB"].iter());
        let mut unit = units.next();
        // A number that would be rounded up to 1000 uses the next unit.
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
    fn the_message_names_request_limit_and_usage() {
        let live = [4_000_000, 0, 0, 3_000_000, 0, 0, 0];
        let error = OutOfMemory {
            category: Category::Activations,
            requested: 2_097_152,
            limit: Some(8_000_000),
            live,
        };
        assert_eq!(
            error.to_string(),
            "out of memory: 2.10 MB of activations do not fit beside the 7.00 MB in use; the limit is 8.00 MB. \
             In use:\n  parameters       4.00 MB\n  activations      3.00 MB"
        );
        let error = OutOfMemory { limit: None, ..error };
        assert!(error.to_string().contains("7.00 MB in use; the system has no more. In use:\n"));
    }
}
