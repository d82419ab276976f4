//! Reading boxes of named tensors, from a checkpoint or a Hugging Face folder.

use std::path::Path;

use super::{CheckpointError, TensorBox};

/// Stored tensors; any box of one can be read, widened to f32. Reading takes `&self`, so all ranks of a process can
/// share a source.
pub trait TensorSource {
    /// Returns the file or folder of the tensor `name`, for messages.
    fn path_of(&self, name: &str) -> &Path;

    /// Copies the stored elements of `tensor_box`, which is inside of `shape`, and returns their number.
    ///
    /// # Errors
    /// A tensor that is missing, or of another shape or dtype.
    fn copy_box(
        &self,
        name: &str,
        shape: &[usize],
        tensor_box: &TensorBox,
        out: &mut [f32],
    ) -> Result<usize, CheckpointError>;

    /// Reads a box of a tensor whose global shape is `shape` into `out`.
    ///
    /// # Errors
    /// A tensor that is missing, or of another shape or dtype, and a box outside of it.
    ///
    /// # Panics
    /// If `out` does not have the length of the box: a fault of the calling code.
    fn read_into(
        &self,
        name: &str,
        shape: &[usize],
        tensor_box: &TensorBox,
        out: &mut [f32],
    ) -> Result<(), CheckpointError> {
        assert_eq!(out.len(), tensor_box.len(), "length of the buffer for `{name}`");
        let refuse =
            |reason: String| CheckpointError::tensor_error(self.path_of(name), name, reason);
        if !tensor_box.is_inside(shape) {
            return Err(refuse(format!("of shape {shape:?} has no part {tensor_box}")));
        }
        let copied = self.copy_box(name, shape, tensor_box, out)?;
        if copied == tensor_box.len() {
            Ok(())
        } else {
            Err(refuse(format!("has only {copied} elements of {tensor_box}")))
        }
    }

    /// Reads a box of a tensor whose global shape is `shape`.
    ///
    /// # Errors
    /// As [`read_into`](Self::read_into).
    fn read(
        &self,
        name: &str,
        shape: &[usize],
        tensor_box: &TensorBox,
    ) -> Result<Vec<f32>, CheckpointError> {
        let mut out = vec![0.0; tensor_box.len()];
        self.read_into(name, shape, tensor_box, &mut out)?;
        Ok(out)
    }
}
