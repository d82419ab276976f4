//! Check that the model reads the documents of `--documents`.

use crate::comm::Site;
use crate::tensor::Rank;
use crate::train::Result;
use crate::train::plan::{Plan, check_documents_are_used};
use crate::train::report::{StepObserver, StepReport};

/// The check of the first step of a run.
pub struct DocumentsCheck {
    is_due: bool,
}

impl DocumentsCheck {
    /// Creates the check of a run with `--documents`, which does nothing in another one.
    pub fn new(plan: &Plan) -> DocumentsCheck {
        DocumentsCheck { is_due: plan.dataset.documents().is_some() }
    }
}

impl StepObserver for DocumentsCheck {
    fn end(&mut self, report: &StepReport<'_>) -> Result<()> {
        let is_due = std::mem::take(&mut self.is_due);
        if is_due { check_first_step_used_documents(report.rank) } else { Ok(()) }
    }
}

/// Checks after the first step that a layer of the model has read the documents of its tokens, on any rank: pipeline
/// stages have different layers. The plan has already checked all models that can run on zeros. Every rank calls it,
/// and all get the same result.
fn check_first_step_used_documents(rank: &Rank) -> Result<()> {
    let mut used = [f64::from(u8::from(rank.has_used_documents()))];
    rank.sum_over_ranks(&Site::new("--documents"), &mut used);
    check_documents_are_used(used[0] > 0.0)
}
