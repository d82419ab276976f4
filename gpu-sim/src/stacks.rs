//! Stacks of the fibers that stand for the threads of a block.

use std::ffi::c_char;
use std::io;
use std::ptr::{self, NonNull};

/// Most threads of a block.
pub(crate) const MOST_THREADS: u32 = 1024;

const PAGE: usize = 4096;

/// A stack for each thread of the largest block and one more, with a page below each that cannot be used.
pub(crate) struct Stacks {
    start: NonNull<c_char>,
}

// SAFETY: it owns its memory.
unsafe impl Send for Stacks {}

impl Stacks {
    /// From one stack to the next.
    pub(crate) const STRIDE: usize = Self::BYTES + PAGE;
    /// Of each; pages count once they are used.
    pub(crate) const BYTES: usize = 128 * 1024;
    const ALL: usize = (MOST_THREADS as usize + 1) * Self::STRIDE;

    pub(crate) fn new() -> Result<Stacks, String> {
        let failed =
            || format!("no memory for the stacks of a block: {}", io::Error::last_os_error());
        let (access, kind) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        );
        // SAFETY: asks for new memory.
        let start = unsafe { libc::mmap(ptr::null_mut(), Self::ALL, access, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(failed());
        }
        let stacks = Stacks { start: NonNull::new(start.cast()).ok_or_else(failed)? };
        for thread in 0..=MOST_THREADS as usize {
            // SAFETY: a page of the memory.
            let result = unsafe {
                libc::mprotect(start.byte_add(thread * Self::STRIDE), PAGE, libc::PROT_NONE)
            };
            if result != 0 {
                return Err(failed());
            }
        }
        Ok(stacks)
    }

    /// The first stack, above its page.
    pub(crate) fn start(&self) -> *mut c_char {
        self.start.as_ptr().wrapping_byte_add(PAGE)
    }
}

impl Stacks {
    /// The upper end of the stack that no thread has.
    pub(crate) fn spare(&self) -> usize {
        self.start.as_ptr() as usize + Self::ALL
    }
}

impl Drop for Stacks {
    fn drop(&mut self) {
        // SAFETY: the memory is ours, and no fiber is left.
        unsafe { libc::munmap(self.start.as_ptr().cast(), Self::ALL) };
    }
}
