//! The data of a dry run, which computes nothing.

use crate::data::RowSource;
use crate::train::config::Config;

/// Rows of zeros, of any length.
pub struct SyntheticRows;

impl RowSource for SyntheticRows {
    fn name(&self) -> &str {
        "synthetic data"
    }

    fn rows(&self) -> u64 {
        1
    }

    fn fingerprint(&self) -> String {
        "zeros".to_owned()
    }

    fn write_row(
        &self,
        _: u64,
        tokens: &mut [u32],
        targets: &mut [u32],
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        tokens.fill(0);
        targets.fill(0);
        Ok(())
    }
}

impl Config {
    /// Returns true if the run is a dry run without data: neither `--data` nor rows of the program. The data of a
    /// checkpoint is compared, so a run that is resumed has data.
    pub fn has_synthetic_data(&self) -> bool {
        let is_of_program =
            self.rows.is_some() || self.task.as_ref().is_some_and(|task| task.examples.is_some());
        self.is_dry_run() && self.data.is_none() && !is_of_program && self.resume.is_none()
    }
}
