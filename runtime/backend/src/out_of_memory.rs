//! The out-of-memory error and the formatting of byte counts.

use super::{Bytes, Category};

/// The error of an allocation beyond the memory limit of a rank, or beyond the memory of the system.
///
/// Model code returns tensors, not `Result`s, so a failed allocation also unwinds the rank with this payload;
/// `launch` turns it into an error.
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

/// `out of memory: 2.10 MB of activations do not fit in addition to the 7.00 MB in use; the limit is 8.00 MB. In use:`,
/// and a line for each category.
impl std::fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let total: usize = self.live.iter().sum();
        write!(
            f,
            "out of memory: {} of {} do not fit in addition to the {} in use; ",
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

#[cfg(test)]
mod tests {
    use super::*;

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
            "out of memory: 2.10 MB of activations do not fit in addition to the 7.00 MB in use; the limit is 8.00 MB. \
             In use:\n  parameters       4.00 MB\n  activations      3.00 MB"
        );
        let error = OutOfMemory { limit: None, ..error };
        assert!(error.to_string().contains("7.00 MB in use; the system has no more. In use:\n"));
    }
}
