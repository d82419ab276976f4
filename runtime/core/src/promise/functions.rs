//! The calls of a function that are checked: its first ones, those with new options, and a few of all later ones.
//!
//! Before such a call, the results are filled with a NaN that no kernel writes. An element that still holds it after
//! the call would be stale memory in all later calls.

use std::any::TypeId;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::panic::Location;

use half::bf16;

use crate::context::Rank;
use meshwright_backend::{Buffer, DType};

use super::digests::hash_of;

/// Bits of the NaN in f32; the upper half are those in bf16.
const UNWRITTEN: u32 = 0x7fe5_a3c9;
const UNWRITTEN_BF16: u16 = (UNWRITTEN >> 16) as u16;

/// Number of first calls that are all checked.
const FIRST_CALLS: u64 = 8;

/// Number of different options of a function that are checked at their first call.
const OPTIONS: usize = 64;

/// A call of a function of type `F`, whose shapes are part of the type.
#[derive(Hash)]
pub(crate) struct CallKey<'a> {
    pub(crate) path: &'a str,
    pub(crate) called_at: &'static Location<'static>,
    pub(crate) pass: &'static str,
    /// Lengths of the results, and which gradients are required.
    pub(crate) results: Vec<usize>,
}

/// The calls of a rank, by the hashes of their types and keys.
#[derive(Default)]
struct CheckedCalls(RefCell<HashMap<u64, CallCount>>);

/// Calls with one key.
#[derive(Default)]
struct CallCount {
    calls: u64,
    checks: usize,
    /// Number of the next call that is checked.
    next: u64,
    /// Hashes of options that were checked.
    options: HashSet<u64>,
}

/// The check of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallCheck {
    /// Everything is checked: it is the first call, or the first one with these options.
    Full,
    /// A repeated check, with its number.
    Repeated(usize),
    /// The call is not checked.
    Unchecked,
}

impl CallCheck {
    /// Begins the check of a call of `F`.
    ///
    /// A call that is captured in a CUDA graph is not checked, because the host does not read device memory then; the
    /// steps before it were eager. Neither is one of a dry run, whose kernels write nothing.
    pub(crate) fn new<F: 'static>(
        rank: &Rank,
        key: &CallKey<'_>,
        options: Option<&str>,
    ) -> CallCheck {
        let is_captured = rank.allocator().device().is_some_and(|device| device.is_capturing());
        if is_captured || rank.backend().is_dry_run() || !rank.makes_checks() {
            return CallCheck::Unchecked;
        }
        let mut calls = rank.session_state::<CheckedCalls>().0.borrow_mut();
        calls.entry(hash_of((TypeId::of::<F>(), key))).or_default().count_call(options)
    }

    /// Returns true if the call is checked.
    pub(crate) fn is_checked(self) -> bool {
        self != CallCheck::Unchecked
    }

    /// Marks all elements as unwritten.
    pub(crate) fn mark_unwritten(self, buffer: &mut Buffer) {
        if !self.is_checked() {
            return;
        }
        let (len, dtype) = (buffer.len(), buffer.dtype());
        let mut view = buffer.view_mut();
        match dtype {
            DType::F32 => view.write(&vec![f32::from_bits(UNWRITTEN); len]),
            DType::Bf16 => view.write(&vec![bf16::from_bits(UNWRITTEN_BF16); len]),
            DType::U32 | DType::F64 => unreachable!("results of functions are numbers"),
        }
    }

    /// Checks that all elements were written.
    ///
    /// # Panics
    /// If one was not.
    #[track_caller]
    pub(crate) fn check_written(self, buffer: &Buffer, name: impl std::fmt::Display) {
        if !self.is_checked() {
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

impl CallCount {
    /// Counts a call, and returns its check.
    ///
    /// Settings that a function does not state as options may change at any time, so the first calls are checked, and
    /// then one each time that their number has grown by a quarter to three eighths: irregularly, so that no call of a
    /// loop over layers is left out forever.
    fn count_call(&mut self, options: Option<&str>) -> CallCheck {
        self.calls += 1;
        let are_new = self.options.len() < OPTIONS && self.options.insert(hash_of(options));
        if !are_new && self.calls < self.next {
            return CallCheck::Unchecked;
        }
        let number = self.calls;
        self.next = match number {
            0..FIRST_CALLS => number + 1,
            _ => number + number / 4 + hash_of(number) % (number / 8 + 1),
        };
        self.checks += 1;
        if are_new { CallCheck::Full } else { CallCheck::Repeated(self.checks) }
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
        DType::U32 | DType::F64 => unreachable!("results of functions are numbers"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_calls_are_checked_ever_more_rarely() {
        let mut count = CallCount::default();
        let is_checked = |call: &u64| {
            let check = count.count_call(Some("a"));
            assert_eq!(check == CallCheck::Full, *call == 1);
            check.is_checked()
        };
        let checked: Vec<u64> = (1..=10_000).filter(is_checked).collect();
        assert_eq!(checked[..8], [1, 2, 3, 4, 5, 6, 7, 8]);
        assert!(checked.len() < 45, "{checked:?}");
        let grows_by = |pair: &[u64]| pair[1] - pair[0] <= pair[0] * 3 / 8 + 1;
        assert!(checked.windows(2).all(grows_by), "{checked:?}");
        // New options are checked immediately, as far as they are few.
        let full = (0..1000).filter(|n| count.count_call(Some(&n.to_string())) == CallCheck::Full);
        assert_eq!(full.count(), OPTIONS - 1);
    }
}
