//! Check that the model reads the documents of `--documents`.

use crate::comm::Site;
use crate::layout::AxisSet;
use crate::tensor::Rank;
use crate::train::Result;
use crate::train::plan::check_documents_are_used;

/// Checks after the first step that a layer of the model has read the documents of its tokens, on any rank: pipeline
/// stages have different layers. The plan has already checked all models that can run on zeros. Every rank calls it,
/// and all get the same result.
pub fn check_first_step_used_documents(rank: &Rank) -> Result<()> {
    let mut used = [f64::from(u8::from(rank.has_used_documents()))];
    rank.all_reduce_f64(AxisSet::ALL, &Site::new("--documents"), &mut used);
    check_documents_are_used(used[0] > 0.0)
}
