//! Forms of the kernels that sum the gradients of repeated leaves.

/// Form of the kernel that sums, which its source depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SumForm {
    pub kept: usize,
    pub repeated: usize,
    /// True if the innermost dim repeats the leaf: then lanes of a warp sum neighboring elements.
    pub in_lanes: bool,
}
