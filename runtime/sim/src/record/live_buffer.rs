//! Buffers in use.

use meshwright_backend::Category;

use super::ContextId;

/// A buffer in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveBuffer {
    /// The context that has allocated it.
    pub context: ContextId,
    /// Bytes of the buffer.
    pub bytes: u64,
    /// Purpose of the buffer.
    pub category: Category,
}
