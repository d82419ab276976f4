//! The check of a function's first calls: every element of a result is written.
//!
//! Before a call with new sizes, the results are filled with a NaN that no kernel writes. An element that still holds it
//! after the call would be stale memory in all later calls.

use std::any::TypeId;
use std::cell::RefCell;
use std::collections::HashSet;

use half::bf16;

use crate::backend::{Buffer, DType};
use crate::context::Rank;

/// Bits of the NaN in f32; the upper half are those in bf16.
const UNWRITTEN: u32 = 0x7fe5_a3c9;
const UNWRITTEN_BF16: u16 = (UNWRITTEN >> 16) as u16;

/// A checked call: function with its shapes, path, pass, and lengths of the results.
type CheckedCall = (TypeId, String, &'static str, Vec<usize>);

/// The checked calls of a rank.
#[derive(Default)]
struct CheckedCalls(RefCell<HashSet<CheckedCall>>);

/// The check of one call, if it is the first one.
pub(super) struct FirstCall {
    is_first: bool,
}

impl FirstCall {
    /// Begins the check of a call of `F`, of the field at `path`, whose results have these lengths.
    ///
    /// A call that is captured in a CUDA graph is not checked, because the host does not read device memory then; the
    /// steps before it were eager.
    pub(super) fn new<F: 'static>(
        rank: &Rank,
        path: &str,
        pass: &'static str,
        lens: Vec<usize>,
    ) -> FirstCall {
        let is_captured = rank.allocator().device().is_some_and(|device| device.is_capturing());
        let checked = &rank.session_state::<CheckedCalls>().0;
        let key = || (TypeId::of::<F>(), path.to_owned(), pass, lens);
        FirstCall { is_first: !is_captured && checked.borrow_mut().insert(key()) }
    }

    /// Returns true if the call is checked.
    pub(super) fn is_first(&self) -> bool {
        self.is_first
    }

    /// Marks all elements as unwritten.
    pub(super) fn mark_unwritten(&self, buffer: &mut Buffer) {
        if !self.is_first {
            return;
        }
        let (len, dtype) = (buffer.len(), buffer.dtype());
        let mut view = buffer.view_mut();
        match dtype {
            DType::F32 => view.write(&vec![f32::from_bits(UNWRITTEN); len]),
            DType::Bf16 => view.write(&vec![bf16::from_bits(UNWRITTEN_BF16); len]),
            DType::U32 => unreachable!("results of functions are numbers"),
        }
    }

    /// Checks that all elements were written.
    ///
    /// # Panics
    /// If one was not.
    #[track_caller]
    pub(super) fn check_written(&self, buffer: &Buffer, name: impl std::fmt::Display) {
        if !self.is_first {
            return;
        }
        if let Some(element) = first_unwritten(buffer) {
            panic!(
                "{name} has {} elements on this rank, but element {element} was not written: a function writes every \
                 element of its output, and of each gradient that it takes",
                buffer.len()
            );
        }
    }
}

/// Returns the index of the first element that is still marked as unwritten.
fn first_unwritten(buffer: &Buffer) -> Option<usize> {
    let view = buffer.view();
    match buffer.dtype() {
        DType::F32 => {
            view.to_vec::<f32>().into_iter().position(|value| value.to_bits() == UNWRITTEN)
        }
        DType::Bf16 => {
            view.to_vec::<bf16>().into_iter().position(|value| value.to_bits() == UNWRITTEN_BF16)
        }
        DType::U32 => unreachable!("results of functions are numbers"),
    }
}
