//! Raw memory of the host or of a device.

use std::alloc::{Layout, LayoutError, alloc, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;

use super::Device;

/// Cache line and AVX-512 register width.
pub(super) const ALIGN: usize = 64;

/// Size of a huge page on x86-64: larger blocks are aligned to it and request huge pages.
const HUGE_PAGE: usize = 2 << 20;

/// Raw memory. Host memory is always initialized, so that reuse never exposes undefined bytes.
#[derive(Debug)]
pub(super) struct MemoryBlock {
    ptr: NonNull<u8>,
    bytes: usize,
    source: MemorySource,
}

/// The owner of the memory of a block.
#[derive(Debug, Clone)]
pub(super) enum MemorySource {
    /// The host's allocator.
    Host,
    /// Memory of a device.
    Device(Arc<dyn Device>),
    /// Host memory that a device has page-locked.
    PageLocked(Arc<dyn Device>),
    /// Host addresses whose pages are committed on first write.
    Reserved,
    /// Memory of a dry run on the host: reserved if it is small, otherwise addresses that only stand for it.
    DryRun(Arc<dyn Device>),
}

/// Size of the largest block of a dry run that has memory: what the ranks compare with each other fits into it.
pub const DRY_RUN_BLOCK: usize = 1 << 16;

// SAFETY: a block owns its memory like a `Box<[u8]>`.
unsafe impl Send for MemoryBlock {}
// SAFETY: as above; shared access only reads.
unsafe impl Sync for MemoryBlock {}

impl MemoryBlock {
    /// Creates an empty block, aligned like others.
    pub fn empty() -> MemoryBlock {
        #[repr(align(64))]
        struct Aligned;
        MemoryBlock {
            ptr: NonNull::<Aligned>::dangling().cast(),
            bytes: 0,
            source: MemorySource::Host,
        }
    }

    /// Allocates `bytes` zeroed bytes; `None` if the host is out of memory.
    pub fn new(bytes: usize) -> Option<MemoryBlock> {
        if bytes == 0 {
            return Some(MemoryBlock::empty());
        }
        let layout = Self::layout(bytes).ok()?;
        // SAFETY: the layout has a size above zero.
        let ptr = NonNull::new(unsafe { alloc(layout) })?;
        // Before the first write, which allocates the pages.
        advise_huge_pages(ptr, bytes);
        // SAFETY: the allocation holds `bytes` bytes.
        unsafe { ptr.write_bytes(0, bytes) };
        Some(MemoryBlock { ptr, bytes, source: MemorySource::Host })
    }

    /// Allocates `bytes` bytes from `source`; `None` if it is out of memory. Device memory has unspecified contents.
    pub fn allocate(source: &MemorySource, bytes: usize) -> Option<MemoryBlock> {
        let ptr = match source {
            MemorySource::Host => return MemoryBlock::new(bytes),
            MemorySource::DryRun(_) if bytes <= DRY_RUN_BLOCK => {
                return MemoryBlock::allocate(&MemorySource::Reserved, bytes);
            }
            _ if bytes == 0 => MemoryBlock::empty().ptr,
            MemorySource::Reserved => reserve(bytes)?,
            MemorySource::DryRun(host) => host.alloc(bytes)?,
            MemorySource::Device(device) => device.alloc(bytes)?,
            MemorySource::PageLocked(device) => {
                let ptr = device.alloc_page_locked(bytes)?;
                // SAFETY: the allocation holds `bytes` bytes of host memory.
                unsafe { ptr.write_bytes(0, bytes) };
                ptr
            }
        };
        Some(MemoryBlock { ptr, bytes, source: source.clone() })
    }

    /// Returns what accesses the memory: its device, or a dry run; `None` for host memory.
    pub fn device(&self) -> Option<&Arc<dyn Device>> {
        match &self.source {
            MemorySource::Device(device) | MemorySource::DryRun(device) => Some(device),
            MemorySource::Host | MemorySource::PageLocked(_) | MemorySource::Reserved => None,
        }
    }

    /// Returns the start address, aligned to [`ALIGN`] bytes.
    pub fn as_ptr(&self) -> *mut u8 {
        self.ptr.as_ptr()
    }

    /// Returns the size in bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    fn layout(bytes: usize) -> Result<Layout, LayoutError> {
        let align = if bytes >= HUGE_PAGE { HUGE_PAGE } else { ALIGN };
        Layout::from_size_align(bytes, align)
    }
}

/// Reserves addresses of the host: they read as zeros, and pages take memory when they are first written. `None` if the
/// system has no more addresses.
#[cfg(unix)]
fn reserve(bytes: usize) -> Option<NonNull<u8>> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address that the system chooses changes no memory in use.
    let ptr = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, kind, -1, 0) };
    if ptr == libc::MAP_FAILED { None } else { NonNull::new(ptr.cast()) }
}

/// Returns `None`: other systems cannot reserve addresses.
#[cfg(not(unix))]
fn reserve(_: usize) -> Option<NonNull<u8>> {
    None
}

/// Requests huge pages for a large block, which saves page faults and TLB misses. The kernel may decline.
fn advise_huge_pages(ptr: NonNull<u8>, bytes: usize) {
    #[cfg(target_os = "linux")]
    if bytes >= HUGE_PAGE {
        // SAFETY: the range was just allocated, begins on a page, and the advice does not change its contents.
        unsafe { libc::madvise(ptr.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (ptr, bytes);
}

impl Drop for MemoryBlock {
    fn drop(&mut self) {
        // SAFETY: allocated in `allocate` with this size, and freed once.
        match (&self.source, self.bytes) {
            (MemorySource::Device(device) | MemorySource::DryRun(device), 1..) => {
                return unsafe { device.free(self.ptr, self.bytes) };
            }
            (MemorySource::PageLocked(device), 1..) => {
                // SAFETY: as above.
                return unsafe { device.free_page_locked(self.ptr, self.bytes) };
            }
            #[cfg(unix)]
            (MemorySource::Reserved, 1..) => {
                // SAFETY: mapped in `reserve` with this size, and unmapped once.
                unsafe { libc::munmap(self.ptr.as_ptr().cast(), self.bytes) };
                return;
            }
            _ => {}
        }
        // An empty block has nothing to free; any other was made with a valid layout.
        if let (1.., Ok(layout)) = (self.bytes, Self::layout(self.bytes)) {
            // SAFETY: allocated in `new` with this layout, and freed once.
            unsafe { dealloc(self.ptr.as_ptr(), layout) }
        }
    }
}
