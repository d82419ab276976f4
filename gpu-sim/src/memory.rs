//! Device memory: host memory between inaccessible pages.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ptr;

use meshwright_cuda::DriverError;

const PAGE: usize = 4096;
/// Alignment of device addresses. A red zone of this size precedes each allocation; the rest of its last unit is a red
/// zone too.
const UNIT: usize = 256;
/// Fill byte of fresh memory and red zones: floats of it are NaN.
const POISON: u8 = 0xff;
/// Number of freed allocations whose addresses are not reused.
const BURIED: usize = 4096;

/// The memory of a device.
#[derive(Debug)]
pub(crate) struct Memory {
    limit: usize,
    used: usize,
    blocks: BTreeMap<u64, Block>,
    /// Recently freed allocations: inaccessible, and their addresses are not reused.
    buried: VecDeque<Block>,
}

/// An allocation.
#[derive(Debug)]
struct Block {
    bytes: usize,
    mapping: u64,
    mapped: usize,
}

impl Memory {
    pub(crate) fn new(limit: usize) -> Memory {
        Memory { limit, used: 0, blocks: BTreeMap::new(), buried: VecDeque::new() }
    }

    /// Returns the total size and number of live allocations.
    pub(crate) fn live(&self) -> (usize, usize) {
        (self.used, self.blocks.len())
    }

    /// Returns the free memory, in bytes.
    pub(crate) fn unused(&self) -> usize {
        self.limit - self.used
    }

    pub(crate) fn alloc(&mut self, bytes: usize) -> Result<u64, DriverError> {
        let exhausted = DriverError::OutOfMemory { bytes };
        if bytes == 0 {
            return Err(failure("alloc", "an allocation has at least one byte".to_string()));
        }
        if bytes > self.unused() {
            return Err(exhausted);
        }
        let units = bytes.next_multiple_of(UNIT);
        let mapped = (units + UNIT).next_multiple_of(PAGE) + 2 * PAGE;
        let (access, kind) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        );
        // SAFETY: maps new memory.
        let mapping = unsafe { libc::mmap(ptr::null_mut(), mapped, access, kind, -1, 0) };
        if mapping == libc::MAP_FAILED {
            return Err(exhausted);
        }
        let last = mapping.wrapping_byte_add(mapped - PAGE);
        // SAFETY: the inner pages of this mapping.
        unsafe {
            ptr::write_bytes(mapping.byte_add(PAGE).cast::<u8>(), POISON, mapped - 2 * PAGE);
            if libc::mprotect(mapping, PAGE, libc::PROT_NONE) != 0
                || libc::mprotect(last, PAGE, libc::PROT_NONE) != 0
            {
                let reason = io::Error::last_os_error().to_string();
                libc::munmap(mapping, mapped);
                return Err(failure("alloc", reason));
            }
        }
        let address = last as u64 - units as u64;
        self.blocks.insert(address, Block { bytes, mapping: mapping as u64, mapped });
        self.used += bytes;
        Ok(address)
    }

    pub(crate) fn free(&mut self, address: u64, bytes: usize) -> Result<(), DriverError> {
        let block = match self.blocks.remove(&address) {
            Some(block) if block.bytes == bytes => block,
            Some(block) => {
                let reason = format!(
                    "{bytes} bytes at {address:#x}, which were allocated as {}",
                    block.bytes
                );
                self.blocks.insert(address, block);
                return Err(failure("free", reason));
            }
            None => return Err(failure("free", format!("there is no allocation at {address:#x}"))),
        };
        self.used -= block.bytes;
        let result = block.check(address);
        block.close();
        self.buried.push_back(block);
        if self.buried.len() > BURIED
            && let Some(oldest) = self.buried.pop_front()
        {
            oldest.unmap();
        }
        result.map_err(|reason| failure("free", reason))
    }

    /// Returns an error if a red zone was written.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.blocks.iter().try_for_each(|(&address, block)| block.check(address))
    }

    /// Returns an error unless a range of bytes is inside one allocation.
    pub(crate) fn require(&self, address: u64, bytes: usize) -> Result<(), String> {
        if bytes == 0 {
            return Ok(());
        }
        let outside = || format!("{bytes} bytes at {address:#x}: {}", self.describe(address));
        let (start, block) = self.blocks.range(..=address).next_back().ok_or_else(outside)?;
        let offset = (address - start) as usize;
        if offset >= block.bytes || block.bytes - offset < bytes { Err(outside()) } else { Ok(()) }
    }

    /// Describes the surroundings of an address, for messages.
    pub(crate) fn describe(&self, address: u64) -> String {
        match self.blocks.range(..=address).next_back() {
            Some((&start, block)) if address < start + block.bytes as u64 => {
                format!("byte {} of an allocation of {}", address - start, block.bytes)
            }
            Some((&start, block)) if address < block.mapping + block.mapped as u64 => {
                format!(
                    "{} bytes beyond the end of an allocation of {}",
                    address - start - block.bytes as u64,
                    block.bytes
                )
            }
            _ => match self.blocks.range(address..).next() {
                Some((&start, block)) if address >= block.mapping => {
                    format!("{} bytes before an allocation of {}", start - address, block.bytes)
                }
                _ => "in no live allocation".to_string(),
            },
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.blocks.values().chain(&self.buried).for_each(Block::unmap);
    }
}

impl Block {
    /// Returns true if the red zones are intact.
    fn check(&self, address: u64) -> Result<(), String> {
        let padded = self.bytes.next_multiple_of(UNIT);
        // SAFETY: at least one unit before the allocation, and the rest of its last unit, are mapped.
        let (before, behind) = unsafe {
            let start = address as *const u8;
            (
                std::slice::from_raw_parts(start.sub(UNIT), UNIT),
                std::slice::from_raw_parts(start.add(self.bytes), padded - self.bytes),
            )
        };
        // Whole slices are compared first, as there are many blocks, and hardly ever a difference.
        const INTACT: [u8; UNIT] = [POISON; UNIT];
        if before == INTACT && behind == &INTACT[..behind.len()] {
            return Ok(());
        }
        if let Some(at) = before.iter().rposition(|&byte| byte != POISON) {
            return Err(format!(
                "a write {} bytes before an allocation of {}",
                UNIT - at,
                self.bytes
            ));
        }
        match behind.iter().position(|&byte| byte != POISON) {
            Some(at) => {
                Err(format!("a write {at} bytes beyond the end of an allocation of {}", self.bytes))
            }
            None => Ok(()),
        }
    }

    /// Releases the memory to the host but keeps its addresses reserved.
    fn close(&self) {
        let mapping = self.mapping as *mut libc::c_void;
        // SAFETY: the mapping belongs to this block, whose contents are no longer needed. If the host refuses, later
        // access is not detected.
        unsafe {
            libc::madvise(mapping, self.mapped, libc::MADV_DONTNEED);
            libc::mprotect(mapping, self.mapped, libc::PROT_NONE);
        }
    }

    fn unmap(&self) {
        // SAFETY: the mapping belongs to this block, which is dropped.
        unsafe { libc::munmap(self.mapping as *mut libc::c_void, self.mapped) };
    }
}

/// Creates the error of a call.
pub(crate) fn failure(call: &'static str, reason: String) -> DriverError {
    DriverError::Call { call, reason }
}
