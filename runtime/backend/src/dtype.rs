//! Element types of buffers. Mixed precision is bf16 for compute and f32 for master weights, gradients and optimizer
//! state; bf16 has the exponent range of f32, so there is no loss scaling.

use half::bf16;

/// The element type of a [`Buffer`](super::Buffer).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DType {
    /// 32-bit floating point.
    F32,
    /// The upper 16 bits of an [`F32`](DType::F32): its range with 8 bits of precision (`half::bf16`).
    Bf16,
    /// 32-bit unsigned integer: token ids.
    U32,
    /// 64-bit floating point: sums of losses, counts and squares on the host, which no kernel computes.
    F64,
}

impl DType {
    /// Returns the size of an element in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            DType::F32 | DType::U32 => 4,
            DType::Bf16 => 2,
            DType::F64 => 8,
        }
    }

    /// Returns the name used by `--dtype` and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::Bf16 => "bf16",
            DType::U32 => "u32",
            DType::F64 => "f64",
        }
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A Rust type that a buffer can hold.
pub trait Element: bytemuck::Pod + Send + Sync {
    /// The matching dtype.
    const DTYPE: DType;
}

impl Element for f32 {
    const DTYPE: DType = DType::F32;
}

impl Element for bf16 {
    const DTYPE: DType = DType::Bf16;
}

impl Element for u32 {
    const DTYPE: DType = DType::U32;
}

impl Element for f64 {
    const DTYPE: DType = DType::F64;
}
