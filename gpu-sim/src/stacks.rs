//! Stacks of the fibers that simulate the threads of a block.

use std::ffi::c_char;
use std::io;
use std::ptr::{self, NonNull};

/// Maximum number of threads per block.
pub(crate) const MOST_THREADS: u32 = 1024;

const PAGE: usize = 4096;

/// A stack for each thread of the largest block and one more, each above a guard page.
pub(crate) struct Stacks {
    start: NonNull<c_char>,
}

// SAFETY: the stacks own their memory.
unsafe impl Send for Stacks {}

impl Stacks {
    /// Distance between stacks, in bytes.
    pub(crate) const STRIDE: usize = Self::BYTES + PAGE;
    /// Size of a stack, in bytes; pages are committed on first use.
    pub(crate) const BYTES: usize = 128 * 1024;
    const ALL: usize = (MOST_THREADS as usize + 1) * Self::STRIDE;

    pub(crate) fn new() -> Result<Stacks, String> {
        let failed =
            || format!("no memory for the stacks of a block: {}", io::Error::last_os_error());
        let (access, kind) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        );
        // SAFETY: maps new memory.
        let start = unsafe { libc::mmap(ptr::null_mut(), Self::ALL, access, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(failed());
        }
        let stacks = Stacks { start: NonNull::new(start.cast()).ok_or_else(failed)? };
        for thread in 0..=MOST_THREADS as usize {
            // SAFETY: a page of this mapping.
            let result = unsafe {
                libc::mprotect(start.byte_add(thread * Self::STRIDE), PAGE, libc::PROT_NONE)
            };
            if result != 0 {
                return Err(failed());
            }
        }
        Ok(stacks)
    }

    /// Returns the first stack, above its guard page.
    pub(crate) fn start(&self) -> *mut c_char {
        self.start.as_ptr().wrapping_byte_add(PAGE)
    }
}

impl Stacks {
    /// Returns the upper end of the additional stack.
    pub(crate) fn spare(&self) -> usize {
        self.start.as_ptr() as usize + Self::ALL
    }
}

impl Drop for Stacks {
    fn drop(&mut self) {
        // SAFETY: the mapping is owned, and no fiber is left.
        unsafe { libc::munmap(self.start.as_ptr().cast(), Self::ALL) };
    }
}
