//! What a member posts for the others to work on.

use std::ops::Range;

use crate::backend::{DType, Element, View, ViewMut};

/// Up to this many bytes an operand is copied into its post; above, it is lent.
pub const COPY_LIMIT: usize = 8 << 10;

/// Memory of one member within a meeting.
pub enum Operand {
    /// Nothing to read.
    None,
    /// A copy, which the meeting owns.
    Copied(Copied),
    /// The member's own memory, which it does not touch or free before the meeting has parted.
    Lent(Lent),
}

impl Operand {
    /// An operand that others read.
    pub fn source(view: View<'_>) -> Operand {
        match view.bytes().len() {
            0 => Operand::None,
            bytes if bytes <= COPY_LIMIT => Operand::Copied(Copied::of(view)),
            _ => Operand::Lent(Lent::source(view)),
        }
    }

    /// The memory, if it is lent.
    pub fn lent(&self) -> Option<&Lent> {
        match self {
            Operand::Lent(lent) => Some(lent),
            _ => None,
        }
    }

    /// The elements of `range`.
    ///
    /// # Safety
    /// Between meeting and parting of the meeting that holds the operand, while no thread writes to `range`.
    pub unsafe fn read<T: Element>(&self, range: Range<usize>) -> &[T] {
        match self {
            Operand::None => &[][range],
            Operand::Copied(copied) => &copied.typed()[range],
            // SAFETY: as the caller promises.
            Operand::Lent(lent) => unsafe { lent.read(range) },
        }
    }
}

/// An owned copy of elements.
pub struct Copied {
    /// Words and not bytes, so that every element type is aligned.
    words: Box<[u64]>,
    bytes: usize,
}

impl Copied {
    fn of(view: View<'_>) -> Copied {
        let bytes = view.bytes();
        let mut words = vec![0u64; bytes.len().div_ceil(8)].into_boxed_slice();
        bytemuck::cast_slice_mut(&mut words)[..bytes.len()].copy_from_slice(bytes);
        Copied { words, bytes: bytes.len() }
    }

    fn typed<T: Element>(&self) -> &[T] {
        bytemuck::cast_slice(&bytemuck::cast_slice::<u64, u8>(&self.words)[..self.bytes])
    }
}

/// Memory borrowed from a member for the length of a meeting.
#[derive(Clone, Copy)]
pub struct Lent {
    ptr: *mut u8,
    len: usize,
    dtype: DType,
}

// SAFETY: only an address; every access states its own conditions.
unsafe impl Send for Lent {}
// SAFETY: as above.
unsafe impl Sync for Lent {}

impl Lent {
    /// Memory that others read.
    fn source(view: View<'_>) -> Lent {
        Lent { ptr: view.bytes().as_ptr().cast_mut(), len: view.len(), dtype: view.dtype() }
    }

    /// Memory that others read and write.
    pub fn target(view: &mut ViewMut<'_>) -> Lent {
        let (len, dtype) = (view.len(), view.dtype());
        Lent { ptr: view.bytes_mut().as_mut_ptr(), len, dtype }
    }

    /// The elements of `range`.
    ///
    /// # Safety
    /// While the memory is lent and no thread writes to `range`.
    pub unsafe fn read<'a, T: Element>(&self, range: Range<usize>) -> &'a [T] {
        self.check::<T>(&range);
        // SAFETY: in bounds and of this type; the caller promises the rest.
        unsafe { std::slice::from_raw_parts(self.ptr.cast::<T>().add(range.start), range.len()) }
    }

    /// The elements of `range`, exclusive.
    ///
    /// # Safety
    /// While the memory, made by [`target`](Self::target), is lent, and no other thread uses `range`.
    pub unsafe fn write<'a, T: Element>(&self, range: Range<usize>) -> &'a mut [T] {
        self.check::<T>(&range);
        // SAFETY: in bounds and of this type; the caller promises the rest.
        unsafe {
            std::slice::from_raw_parts_mut(self.ptr.cast::<T>().add(range.start), range.len())
        }
    }

    /// Copies `data`, which has the same dtype and length, over the memory.
    ///
    /// # Safety
    /// As [`write`](Self::write), for the whole memory.
    pub unsafe fn fill(&self, data: View<'_>) {
        assert!(
            self.dtype == data.dtype() && self.len == data.len(),
            "a message does not have the size of its target"
        );
        // SAFETY: both are `len` elements long, and the target is exclusive by the promise of the caller.
        unsafe { self.ptr.copy_from_nonoverlapping(data.bytes().as_ptr(), data.bytes().len()) }
    }

    fn check<T: Element>(&self, range: &Range<usize>) {
        assert!(
            self.dtype == T::DTYPE && range.start <= range.end && range.end <= self.len,
            "a collective reached outside the memory that was lent to it"
        );
    }
}
