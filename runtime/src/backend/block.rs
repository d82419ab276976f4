//! Raw memory, of the system or of a device.

use std::alloc::{Layout, LayoutError, alloc, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;

use super::Device;

/// Cache line and AVX-512 register width.
pub(super) const ALIGN: usize = 64;

/// Size of a huge page on x86-64: larger blocks begin on one, and ask for them.
const HUGE_PAGE: usize = 2 << 20;

/// Raw memory; that of the host is always initialised, so reuse never shows undefined bytes.
#[derive(Debug)]
pub(super) struct Block {
    ptr: NonNull<u8>,
    bytes: usize,
    source: Source,
}

/// Where a block comes from, and goes back to.
#[derive(Debug, Clone)]
pub(super) enum Source {
    /// The system.
    Host,
    /// Memory of a device.
    Device(Arc<dyn Device>),
    /// Host memory that a device has page-locked.
    PageLocked(Arc<dyn Device>),
}

// SAFETY: a block owns its memory like a `Box<[u8]>`.
unsafe impl Send for Block {}
// SAFETY: as above; shared access only reads.
unsafe impl Sync for Block {}

impl Block {
    /// No memory, aligned nevertheless.
    pub fn empty() -> Block {
        #[repr(align(64))]
        struct Aligned;
        Block { ptr: NonNull::<Aligned>::dangling().cast(), bytes: 0, source: Source::Host }
    }

    /// `bytes` zeroed bytes, if the system has them.
    pub fn new(bytes: usize) -> Option<Block> {
        if bytes == 0 {
            return Some(Block::empty());
        }
        let layout = Self::layout(bytes).ok()?;
        // SAFETY: the layout has a size above zero.
        let ptr = NonNull::new(unsafe { alloc(layout) })?;
        // Before the first write, which is what takes the pages.
        advise_huge_pages(ptr, bytes);
        // SAFETY: the allocation holds `bytes` bytes.
        unsafe { ptr.write_bytes(0, bytes) };
        Some(Block { ptr, bytes, source: Source::Host })
    }

    /// `bytes` bytes of `source`, if it has them; those of a device have unspecified contents.
    pub fn of(source: &Source, bytes: usize) -> Option<Block> {
        let ptr = match source {
            Source::Host => return Block::new(bytes),
            Source::Device(_) | Source::PageLocked(_) if bytes == 0 => Block::empty().ptr,
            Source::Device(device) => device.alloc(bytes)?,
            Source::PageLocked(device) => {
                let ptr = device.alloc_page_locked(bytes)?;
                // SAFETY: the allocation holds `bytes` bytes of host memory.
                unsafe { ptr.write_bytes(0, bytes) };
                ptr
            }
        };
        Some(Block { ptr, bytes, source: source.clone() })
    }

    /// The device whose memory it is; none: the host's.
    pub fn device(&self) -> Option<&Arc<dyn Device>> {
        match &self.source {
            Source::Device(device) => Some(device),
            Source::Host | Source::PageLocked(_) => None,
        }
    }

    /// Where it begins, on a boundary of [`ALIGN`] bytes.
    pub fn as_ptr(&self) -> *mut u8 {
        self.ptr.as_ptr()
    }

    /// Its size in bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    fn layout(bytes: usize) -> Result<Layout, LayoutError> {
        let align = if bytes >= HUGE_PAGE { HUGE_PAGE } else { ALIGN };
        Layout::from_size_align(bytes, align)
    }
}

/// Asks the system to back a large block with huge pages, which saves page faults and address translation. It may
/// decline; nothing depends on it.
fn advise_huge_pages(ptr: NonNull<u8>, bytes: usize) {
    #[cfg(target_os = "linux")]
    if bytes >= HUGE_PAGE {
        // SAFETY: the range was just allocated, begins on a page, and the advice does not change its contents.
        unsafe { libc::madvise(ptr.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (ptr, bytes);
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated in `of` with this size, and freed once.
        match (&self.source, self.bytes) {
            (Source::Device(device), 1..) => return unsafe { device.free(self.ptr, self.bytes) },
            (Source::PageLocked(device), 1..) => {
                // SAFETY: as above.
                return unsafe { device.free_page_locked(self.ptr, self.bytes) };
            }
            _ => {}
        }
        // An empty block has nothing to give back; any other was made with a valid layout.
        if let (1.., Ok(layout)) = (self.bytes, Self::layout(self.bytes)) {
            // SAFETY: allocated in `new` with this layout, and freed once.
            unsafe { dealloc(self.ptr.as_ptr(), layout) }
        }
    }
}
