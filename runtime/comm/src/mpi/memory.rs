//! The memory of a call, from its issue to its end.

use std::slice;
use std::sync::Arc;

use half::bf16;
use meshwright_backend::{Buffer, CachingAllocator, Category, DType, ReduceOp};

use crate::reduction::{BLOCK, Reducible, blocks_of};
use crate::{Blocks, Operands};

use super::plan::{CallStep, MemoryRegion, MemoryRun};

/// The memory of a call. MPI writes only buffers that the call owns, and reads those and the operands.
pub struct CallMemory {
    source: Source,
    target: Target,
    scratch: Option<Buffer>,
}

enum Source {
    None,
    /// The destination: the call is in place.
    Target,
    Held(Arc<Buffer>),
    /// Memory that the caller of a blocking call does not change or free before the outcome.
    Lent(*const u8, usize),
}

enum Target {
    None,
    Owned(Buffer),
    /// Memory that the caller of a blocking call does not use before the outcome. MPI does not write it: the caller may
    /// free it after an error, while messages are in progress.
    Lent(*mut u8, usize),
}

// SAFETY: buffers may be sent, and lent memory is used by one thread at a time, until the outcome.
unsafe impl Send for CallMemory {}

impl CallMemory {
    /// Takes the buffers of an asynchronous call.
    pub fn owned(src: Option<Arc<Buffer>>, dst: Option<Buffer>) -> CallMemory {
        let source = src.map_or(Source::Target, Source::Held);
        CallMemory { source, target: dst.map_or(Target::None, Target::Owned), scratch: None }
    }

    /// Lends the memory of a blocking call.
    ///
    /// # Safety
    /// The operands must stay borrowed, and not be used otherwise, until the outcome of the call.
    pub unsafe fn lent(operands: &mut Operands<'_>) -> CallMemory {
        let (src, dst) = operands.views_mut();
        let target = dst.map_or(Target::None, |dst| {
            let len = dst.as_view().byte_len();
            Target::Lent(dst.address(), len)
        });
        let source = match (src, &target) {
            (Some(src), _) => Source::Lent(src.address(), src.byte_len()),
            (None, Target::None) => Source::None,
            (None, _) => Source::Target,
        };
        CallMemory { source, target, scratch: None }
    }

    /// Returns true if MPI may write the destination.
    pub fn owns_target(&self) -> bool {
        !matches!(self.target, Target::Lent(..))
    }

    /// Allocates the scratch.
    pub fn add_scratch(&mut self, bytes: usize, allocator: &Arc<CachingAllocator>) {
        if bytes > 0 {
            // Of 64-bit words, so that every element type is aligned.
            let words = bytes.div_ceil(DType::F64.bytes());
            self.scratch = Some(allocator.alloc(DType::F64, words, Category::Communication));
        }
    }

    /// Returns the destination.
    pub fn into_target(self) -> Option<Buffer> {
        match self.target {
            Target::Owned(buffer) => Some(buffer),
            Target::None | Target::Lent(..) => None,
        }
    }

    /// Never frees the buffers.
    pub fn leak(self) {
        std::mem::forget(self);
    }

    /// Returns the address of a run that is read.
    pub fn read_address(&self, run: &MemoryRun) -> *const u8 {
        let (start, len) = match (run.region, &self.source) {
            (MemoryRegion::Source, Source::Held(buffer)) => bytes_of(Some(buffer)),
            (MemoryRegion::Source, Source::Lent(start, len)) => (*start, *len),
            (MemoryRegion::Source, Source::None) => bytes_of(None),
            (MemoryRegion::Source, Source::Target) | (MemoryRegion::Target, _) => {
                match &self.target {
                    Target::None => bytes_of(None),
                    Target::Owned(buffer) => bytes_of(Some(buffer)),
                    Target::Lent(start, len) => (start.cast_const(), *len),
                }
            }
            (MemoryRegion::Scratch, _) => bytes_of(self.scratch.as_ref()),
        };
        checked_address(start, len, run)
    }

    /// Returns the address of a run that is written.
    pub fn write_address(&mut self, run: &MemoryRun) -> *mut u8 {
        let (start, len) = match (run.region, &mut self.target, &mut self.scratch) {
            (MemoryRegion::Target, Target::Lent(start, len), _) => (*start, *len),
            (MemoryRegion::Target, Target::Owned(buffer), _)
            | (MemoryRegion::Scratch, _, Some(buffer)) => {
                let len = buffer.view().byte_len();
                (buffer.view_mut().address(), len)
            }
            _ => (std::ptr::dangling_mut(), 0),
        };
        checked_address(start, len, run).cast_mut()
    }

    /// Carries out a step without messages. No message of the call may be in progress.
    pub fn run_step(&mut self, step: &CallStep, dtype: DType) {
        match step {
            CallStep::Copy { from, to } => self.copy(from, to),
            CallStep::Pack(blocks) => self.copy_rows(blocks, dtype, Rows::ToParts),
            CallStep::Unpack(blocks) => self.copy_rows(blocks, dtype, Rows::FromParts),
            CallStep::Reduce { op, operands, to } => match dtype {
                DType::Bf16 => self.reduce::<bf16>(*op, operands, to),
                DType::F64 => self.reduce::<f64>(*op, operands, to),
                // Reductions of integers are refused before.
                DType::F32 | DType::U32 => self.reduce::<f32>(*op, operands, to),
            },
            CallStep::Exchange { .. } => {}
        }
    }

    fn copy(&mut self, from: &MemoryRun, to: &MemoryRun) {
        assert_eq!(from.bytes.len(), to.bytes.len(), "a copy has one length");
        let (from_address, to_address) = (self.read_address(from), self.write_address(to));
        // SAFETY: both runs are in bounds; they may be one run, of a call in place.
        unsafe { to_address.copy_from(from_address, from.bytes.len()) };
    }

    fn copy_rows(&mut self, blocks: &Blocks, dtype: DType, rows: Rows) {
        let (element, mut start) = (dtype.bytes(), 0);
        for member in 0..blocks.lens.len() {
            for (whole, own) in blocks.runs(member) {
                let region = match rows {
                    Rows::ToParts => MemoryRegion::Source,
                    Rows::FromParts => MemoryRegion::Target,
                };
                let whole = MemoryRun { region, bytes: whole.start * element..whole.end * element };
                let part = start + own.start * element..start + own.end * element;
                let part = MemoryRun { region: MemoryRegion::Scratch, bytes: part };
                match rows {
                    Rows::ToParts => self.copy(&whole, &part),
                    Rows::FromParts => self.copy(&part, &whole),
                }
            }
            start += blocks.owned(member) * element;
        }
    }

    /// Reduces runs in their order.
    fn reduce<T: Reducible>(&mut self, op: ReduceOp, operands: &[MemoryRun], to: &MemoryRun) {
        let element = size_of::<T>();
        let target = self.write_address(to).cast::<T>();
        let addresses: Vec<*const T> =
            operands.iter().map(|operand| self.read_address(operand).cast()).collect();
        assert!(operands.iter().all(|operand| operand.bytes.len() == to.bytes.len()));
        let mut sums = [T::ZERO; BLOCK];
        for block in blocks_of(0..to.bytes.len() / element) {
            let sum = &mut sums[..block.len()];
            let read = |address: &*const T| {
                // SAFETY: the run is in bounds, aligned for its elements, and not written before the block is reduced.
                unsafe { slice::from_raw_parts(address.wrapping_add(block.start), block.len()) }
            };
            let Some((first, others)) = addresses.split_first() else { return };
            sum.copy_from_slice(read(first));
            T::reduce(op, sum, others.iter().map(read));
            // SAFETY: in bounds. It may be one of the operands, which are not borrowed any more.
            unsafe {
                target.wrapping_add(block.start).copy_from_nonoverlapping(sum.as_ptr(), sum.len());
            }
        }
    }
}

/// A direction of copies between rows and parts.
#[derive(Clone, Copy)]
enum Rows {
    ToParts,
    FromParts,
}

fn bytes_of(buffer: Option<&Buffer>) -> (*const u8, usize) {
    buffer.map_or((std::ptr::dangling(), 0), |buffer| {
        let view = buffer.view();
        (view.address(), view.byte_len())
    })
}

/// Returns the address of `run` in `len` bytes at `start`.
fn checked_address(start: *const u8, len: usize, run: &MemoryRun) -> *const u8 {
    let bytes = &run.bytes;
    assert!(
        bytes.start <= bytes.end && bytes.end <= len,
        "a call reached outside of its memory: {run:?} of {len} bytes"
    );
    start.wrapping_add(bytes.start)
}
