//! Gradients of operands that all samples share.

use super::results::InterleavedOutput;
use super::sizes::check_heads;
use meshwright_backend::{AttentionShape, ViewMut};

/// A gradient f32 `[heads, each]`, and its parts by sample in f64, which are added up in order.
pub(super) struct HeadSums<'a> {
    out: &'a mut [f32],
    parts: Vec<f64>,
    accumulate: bool,
}

impl<'a> HeadSums<'a> {
    /// Creates parts of zeros.
    pub fn new(s: &AttentionShape, each: usize, out: ViewMut<'a>, accumulate: bool) -> Self {
        let out = out.into_typed::<f32>();
        check_heads(s, each, out.len());
        HeadSums { parts: vec![0.0; s.batch * out.len()], out, accumulate }
    }

    /// Returns the parts `[batch, heads, each]` for tasks to write.
    pub fn shared_sums(&mut self) -> InterleavedOutput<'_, f64> {
        InterleavedOutput::new(&mut self.parts)
    }

    /// Adds the parts up.
    pub fn finish_sums(self) {
        let len = self.out.len();
        for (i, out) in self.out.iter_mut().enumerate() {
            let before = if self.accumulate { f64::from(*out) } else { 0.0 };
            let parts = self.parts.iter().skip(i).step_by(len);
            *out = parts.fold(before, |sum, part| sum + part) as f32;
        }
    }
}
