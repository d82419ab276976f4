//! Check that the model keeps the documents apart that `--documents` tells apart.

use crate::comm::Site;
use crate::layout::AxisSet;
use crate::tensor::Rank;
use crate::train::{Error, Result};

/// Checks after the first step that a layer of the model has read the documents of its tokens, on any rank: pipeline stages have
/// different layers. Every rank calls it, and all get the same result.
pub fn check_documents_are_used(rank: &Rank) -> Result<()> {
    let mut used = [f64::from(u8::from(rank.has_used_documents()))];
    rank.all_reduce_f64(AxisSet::ALL, &Site::new("--documents"), &mut used);
    if used[0] > 0.0 {
        return Ok(());
    }
    Err(Error::Input(
        "--documents: the model does not use documents, so attention and positions crossed their borders in the first step; \
         in its `forward`, pass `tokens.documents()` to the layers that keep documents apart: \
         `self.core.forward(&(q, k, v, documents))` and `LearnedPositions::forward_in`; or leave --documents out"
            .to_owned(),
    ))
}
