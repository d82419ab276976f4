//! A run whose numbers are compared with those on other meshes.

use crate::parity::Observed;
use crate::train::{LanguageModel, Result};

use super::documents::check_first_step_used_documents;
use super::rank_loop::RankLoop;

impl<M: LanguageModel> RankLoop<'_, M> {
    /// Runs all steps, with rounding noise if there is a key, and returns their losses, gradients and parameters.
    pub fn observe_steps(mut self, noise: Option<u32>) -> Result<Observed> {
        let rank = self.state.rank.clone();
        if let Some(key) = noise {
            rank.add_rounding_noise(key);
        }
        self.observed = Some(Observed::new(&rank));
        self.observe_parameters();
        self.check_first_batches()?;
        rank.compare_values_before_step();
        let steps = self.plan.first_step()..self.plan.config.steps;
        for step in steps.clone() {
            self.run_step(step)?;
            self.observe_parameters();
            if step == steps.start && self.plan.dataset.documents().is_some() {
                check_first_step_used_documents(&rank)?;
            }
            if rank.is_last_step() {
                // An error: of the data, or of a stop without --save.
                self.end_early(step + 1)?;
            }
        }
        rank.compare_last_updates();
        Ok(self.observed.unwrap_or_else(|| Observed::new(&rank)))
    }

    fn observe_parameters(&mut self) {
        if let Some(observed) = &mut self.observed {
            observed.parameters(&self.state.built);
        }
    }
}
