//! Thread-local scratch memory, reused from call to call.

use std::cell::RefCell;

use bytemuck::{Pod, Zeroable};

/// One cache line, so that scratch is aligned for 512-bit loads.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([f32; 16]);

thread_local! {
    static FREE: RefCell<Vec<Vec<Line>>> = const { RefCell::new(Vec::new()) };
}

/// Calls `f` with `len` scratch elements of unspecified values. Calls can nest.
pub(super) fn with_scratch<R>(len: usize, f: impl FnOnce(&mut [f32]) -> R) -> R {
    let mut lines = FREE.with_borrow_mut(Vec::pop).unwrap_or_default();
    let needed = len.div_ceil(16);
    if lines.len() < needed {
        lines.resize(needed, Line::zeroed());
    }
    let result = f(&mut bytemuck::cast_slice_mut(&mut lines)[..len]);
    FREE.with_borrow_mut(|free| free.push(lines));
    result
}

/// Returns the elements of scratch that this thread keeps for later calls.
pub fn kept_elements() -> usize {
    FREE.with_borrow(|free| free.iter().map(|lines| 16 * lines.len()).sum())
}
