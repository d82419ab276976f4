//! A run whose numbers are compared with those on other meshes.

use crate::parity::Observed;
use crate::train::{Result, Task};

use super::documents::DocumentsCheck;
use super::rank_loop::RankLoop;

impl<T: Task> RankLoop<'_, T> {
    /// Runs all steps, with rounding noise if there is a key, and returns their losses, gradients and parameters.
    pub fn observe_steps(mut self, noise: Option<u32>) -> Result<Observed> {
        let rank = self.state.rank.clone();
        if let Some(key) = noise {
            rank.add_rounding_noise(key);
        }
        self.observed = Some(Observed::new(&rank));
        self.observe_parameters();
        // A stop is an error, without `--save`.
        self.train(&mut [&mut DocumentsCheck::new(self.plan)])?;
        Ok(self.observed.unwrap_or_else(|| Observed::new(&rank)))
    }

    pub(super) fn observe_parameters(&mut self) {
        if let Some(observed) = &mut self.observed {
            observed.parameters(&self.state.built);
        }
    }
}
