//! Operands that a member contributes to a collective.

use std::ops::Range;

use meshwright_backend::{DType, Element, View, ViewMut};

/// Largest operand in bytes that is copied into a contribution; larger ones, and those in device memory, are lent.
pub const COPY_LIMIT: usize = 8 << 10;

/// An operand of one member in a collective.
pub enum MemberOperand {
    /// No operand.
    None,
    /// A copy, owned by the rendezvous.
    Copied(Copied),
    /// The member's own memory, which it does not touch or free before all members are done with it.
    Lent(LentMemory),
}

impl MemberOperand {
    /// Creates an operand that other members read.
    pub fn source(view: View<'_>) -> MemberOperand {
        match (view.byte_len(), view.device()) {
            (0, _) => MemberOperand::None,
            (bytes, None) if bytes <= COPY_LIMIT => MemberOperand::Copied(Copied::from_view(view)),
            _ => MemberOperand::Lent(LentMemory::source(view)),
        }
    }

    /// Creates an operand that other members read, and write if it is lent.
    pub fn target(view: &mut ViewMut<'_>) -> MemberOperand {
        match MemberOperand::source(view.as_view()) {
            MemberOperand::Lent(_) => MemberOperand::Lent(LentMemory::target(view)),
            small => small,
        }
    }

    /// Returns the memory if it is lent.
    pub fn lent_memory(&self) -> Option<&LentMemory> {
        match self {
            MemberOperand::Lent(lent) => Some(lent),
            _ => None,
        }
    }

    /// Returns the address of the elements of `range`, in host or device memory, after a bounds check.
    pub fn run_address(&self, dtype: DType, range: Range<usize>) -> *const u8 {
        match self {
            MemberOperand::None => [0u8; 0][range].as_ptr(),
            MemberOperand::Copied(copied) => {
                copied.bytes()[range.start * dtype.bytes()..range.end * dtype.bytes()].as_ptr()
            }
            MemberOperand::Lent(lent) => lent.run_address(range),
        }
    }

    /// Returns the elements of `range`, in host memory.
    ///
    /// # Safety
    /// The participation in the collective must last, and no thread may write to `range`.
    pub unsafe fn read<T: Element>(&self, range: Range<usize>) -> &[T] {
        match self {
            MemberOperand::None => &[][range],
            MemberOperand::Copied(copied) => &bytemuck::cast_slice(copied.bytes())[range],
            // SAFETY: as the caller guarantees.
            MemberOperand::Lent(lent) => unsafe { lent.read(range) },
        }
    }
}

/// An owned copy of elements.
pub struct Copied {
    /// Words instead of bytes, so that every element type is aligned.
    words: Box<[u64]>,
    bytes: usize,
}

impl Copied {
    fn from_view(view: View<'_>) -> Copied {
        let bytes = view.bytes();
        let mut words = vec![0u64; bytes.len().div_ceil(8)].into_boxed_slice();
        bytemuck::cast_slice_mut(&mut words)[..bytes.len()].copy_from_slice(bytes);
        Copied { words, bytes: bytes.len() }
    }

    fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice::<u64, u8>(&self.words)[..self.bytes]
    }
}

/// Host or device memory, borrowed from a member for the duration of a collective.
#[derive(Clone, Copy)]
pub struct LentMemory {
    ptr: *mut u8,
    len: usize,
    dtype: DType,
}

// SAFETY: only an address; every access states its own conditions.
unsafe impl Send for LentMemory {}
// SAFETY: as above.
unsafe impl Sync for LentMemory {}

impl LentMemory {
    /// Lends memory that other members read.
    fn source(view: View<'_>) -> LentMemory {
        LentMemory { ptr: view.address().cast_mut(), len: view.len(), dtype: view.dtype() }
    }

    /// Lends memory that is written.
    pub fn target(view: &mut ViewMut<'_>) -> LentMemory {
        LentMemory { ptr: view.address(), len: view.len(), dtype: view.dtype() }
    }

    pub fn dtype(&self) -> DType {
        self.dtype
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the address of the elements of `range`, after a bounds check.
    pub fn run_address(&self, range: Range<usize>) -> *mut u8 {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "a collective reached outside the memory that was lent to it"
        );
        self.ptr.wrapping_add(range.start * self.dtype.bytes())
    }

    /// Returns the elements of `range`, in host memory.
    ///
    /// # Safety
    /// The memory must be lent, and no thread may write to `range`.
    pub unsafe fn read<'a, T: Element>(&self, range: Range<usize>) -> &'a [T] {
        let len = range.len();
        // SAFETY: in bounds and of this type; the caller guarantees the rest.
        unsafe { std::slice::from_raw_parts(self.elements(range), len) }
    }

    /// Returns exclusive access to the elements of `range`, in host memory.
    ///
    /// # Safety
    /// The memory must have been lent by [`target`](Self::target), and no other thread may use `range`.
    pub unsafe fn write<'a, T: Element>(&self, range: Range<usize>) -> &'a mut [T] {
        let len = range.len();
        // SAFETY: in bounds and of this type; the caller guarantees the rest.
        unsafe { std::slice::from_raw_parts_mut(self.elements(range), len) }
    }

    fn elements<T: Element>(&self, range: Range<usize>) -> *mut T {
        assert_eq!(self.dtype, T::DTYPE, "lent memory was used as another dtype");
        self.run_address(range).cast()
    }
}
