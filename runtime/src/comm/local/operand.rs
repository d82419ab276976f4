//! What a member posts for the others to work on.

use std::ops::Range;

use crate::backend::{DType, Element, View, ViewMut};

/// Up to this many bytes of host memory are copied into a post; above, and in memory of a device, operands are lent.
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
        match (view.byte_len(), view.device()) {
            (0, _) => Operand::None,
            (bytes, None) if bytes <= COPY_LIMIT => Operand::Copied(Copied::of(view)),
            _ => Operand::Lent(Lent::source(view)),
        }
    }

    /// An operand that others read, and write where it is lent.
    pub fn target(view: &mut ViewMut<'_>) -> Operand {
        match Operand::source(view.as_view()) {
            Operand::Lent(_) => Operand::Lent(Lent::target(view)),
            small => small,
        }
    }

    /// The memory, if it is lent.
    pub fn lent(&self) -> Option<&Lent> {
        match self {
            Operand::Lent(lent) => Some(lent),
            _ => None,
        }
    }

    /// Where the elements of `range` lie, all of them inside, in memory of the host or of the device.
    pub fn run(&self, dtype: DType, range: Range<usize>) -> *const u8 {
        match self {
            Operand::None => [0u8; 0][range].as_ptr(),
            Operand::Copied(copied) => {
                copied.bytes()[range.start * dtype.bytes()..range.end * dtype.bytes()].as_ptr()
            }
            Operand::Lent(lent) => lent.run(range),
        }
    }

    /// The elements of `range`, in host memory.
    ///
    /// # Safety
    /// Between meeting and parting of the meeting that holds the operand, while no thread writes to `range`.
    pub unsafe fn read<T: Element>(&self, range: Range<usize>) -> &[T] {
        match self {
            Operand::None => &[][range],
            Operand::Copied(copied) => &bytemuck::cast_slice(copied.bytes())[range],
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

    fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice::<u64, u8>(&self.words)[..self.bytes]
    }
}

/// Memory of the host or of a device, borrowed from a member for the length of a meeting.
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
        Lent { ptr: view.address().cast_mut(), len: view.len(), dtype: view.dtype() }
    }

    /// Memory that is written.
    pub fn target(view: &mut ViewMut<'_>) -> Lent {
        Lent { ptr: view.address(), len: view.len(), dtype: view.dtype() }
    }

    pub fn dtype(&self) -> DType {
        self.dtype
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Where the elements of `range` lie, all of them inside.
    pub fn run(&self, range: Range<usize>) -> *mut u8 {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "a collective reached outside the memory that was lent to it"
        );
        self.ptr.wrapping_add(range.start * self.dtype.bytes())
    }

    /// The elements of `range`, in host memory.
    ///
    /// # Safety
    /// While the memory is lent and no thread writes to `range`.
    pub unsafe fn read<'a, T: Element>(&self, range: Range<usize>) -> &'a [T] {
        let len = range.len();
        // SAFETY: in bounds and of this type; the caller promises the rest.
        unsafe { std::slice::from_raw_parts(self.elements(range), len) }
    }

    /// The elements of `range`, in host memory, exclusive.
    ///
    /// # Safety
    /// While the memory, made by [`target`](Self::target), is lent, and no other thread uses `range`.
    pub unsafe fn write<'a, T: Element>(&self, range: Range<usize>) -> &'a mut [T] {
        let len = range.len();
        // SAFETY: in bounds and of this type; the caller promises the rest.
        unsafe { std::slice::from_raw_parts_mut(self.elements(range), len) }
    }

    fn elements<T: Element>(&self, range: Range<usize>) -> *mut T {
        assert_eq!(self.dtype, T::DTYPE, "lent memory was used as another dtype");
        self.run(range).cast()
    }
}
