//! Element types.

use serde::Serialize;

use crate::backend::DType;

/// `--dtype`, `--reduce-dtype`, `--grad-dtype`, `--state-dtype`: element type of a computation, a reduction or a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// 32-bit floating point.
    F32,
    /// bfloat16: the exponent of an f32 with 8 bits of precision.
    Bf16,
}

impl Precision {
    /// Returns the dtype of buffers in this precision.
    pub const fn dtype(self) -> DType {
        match self {
            Precision::F32 => DType::F32,
            Precision::Bf16 => DType::Bf16,
        }
    }
}
