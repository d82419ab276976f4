//! Scratch memory of attention calls, and the placement of operands in it.

use std::sync::Arc;

use crate::{DriverError, Stream};

use super::graph::{ElementType, GraphOperand, GraphTensor};
use super::lower::OPERAND_ALIGNMENT;
use super::options::CudnnHost;
use super::plan::{ExecutionPlan, PlanArguments};

/// An execution plan with the placement of its operands.
pub(super) struct PlacedPlan {
    pub plan: ExecutionPlan,
    /// Offset of the workspace in scratch memory, in bytes.
    pub workspace_offset: usize,
    placements: Vec<(GraphOperand, OperandPlacement)>,
    /// Total scratch memory, in bytes.
    pub scratch_bytes: usize,
}

/// Placement of an operand.
#[derive(Clone, Copy)]
pub(super) enum OperandPlacement {
    /// An offset in scratch memory, in bytes.
    Scratch { offset: usize },
    /// An address from the caller, with samples of this many bytes one after the other.
    Caller { sample_bytes: usize },
}

impl PlacedPlan {
    /// Divides scratch memory among the workspace and scratch operands of a plan.
    pub fn new(plan: ExecutionPlan) -> PlacedPlan {
        let mut layout = ScratchLayout::default();
        let workspace_offset = layout.add_part(plan.workspace());
        let mut placements = Vec::new();
        for (id, operand) in plan.graph().operands() {
            let tensor = &plan.graph().tensors[id.0];
            let placement = match operand {
                GraphOperand::RowSum | GraphOperand::DQSum => {
                    OperandPlacement::Scratch { offset: layout.add_part(tensor_bytes(tensor)) }
                }
                _ => OperandPlacement::Caller { sample_bytes: sample_bytes(tensor) },
            };
            placements.push((operand, placement));
        }
        PlacedPlan { plan, workspace_offset, placements, scratch_bytes: layout.total }
    }

    /// Returns the placement of an operand.
    pub fn placement(&self, operand: GraphOperand) -> OperandPlacement {
        let known = self.placements.iter().find(|(own, _)| *own == operand);
        known.expect("every operand of the graph has a placement").1
    }

    /// Returns an error if an operand is not aligned as the library requires.
    pub fn check_alignment(&self, arguments: &PlanArguments) -> Result<(), DriverError> {
        for (operand, _) in &self.placements {
            let address = (arguments.operand)(*operand);
            if !address.is_multiple_of(OPERAND_ALIGNMENT) {
                return Err(DriverError::Library(format!(
                    "cuDNN requires operands aligned to {OPERAND_ALIGNMENT} bytes; {operand:?} is at {address:#x}"
                )));
            }
        }
        Ok(())
    }

    /// Returns true if every sample is aligned as the library requires if the first one is.
    pub fn is_divisible(&self) -> bool {
        self.placements.iter().all(|(_, placement)| match placement {
            OperandPlacement::Scratch { .. } => true,
            OperandPlacement::Caller { sample_bytes } => {
                (*sample_bytes as u64).is_multiple_of(OPERAND_ALIGNMENT)
            }
        })
    }
}

/// Returns the size of a tensor without gaps, in bytes.
fn tensor_bytes(tensor: &GraphTensor) -> usize {
    let elements: i64 = tensor.sizes.iter().product();
    elements as usize * element_bytes(tensor)
}

/// Returns the bytes from the first element of a sample to that of the next one.
fn sample_bytes(tensor: &GraphTensor) -> usize {
    tensor.strides[0] as usize * element_bytes(tensor)
}

fn element_bytes(tensor: &GraphTensor) -> usize {
    match tensor.element {
        ElementType::Bool => 1,
        ElementType::Bf16 => 2,
        ElementType::F32 | ElementType::I32 => 4,
    }
}

/// Granularity of scratch sizes, so that similar sequence lengths share memory.
const SCRATCH_GRANULARITY: usize = 2 << 20;

/// Scratch memory of one stream, shared by all calls on it because they are executed in order.
#[derive(Debug)]
pub(super) struct StreamScratch {
    host: Arc<dyn CudnnHost>,
    stream: Stream,
    /// The last block is in use. Earlier ones were too small; CUDA graphs and pending calls may still use them.
    blocks: Vec<ScratchBlock>,
}

#[derive(Debug, Clone, Copy)]
struct ScratchBlock {
    address: u64,
    bytes: usize,
}

impl StreamScratch {
    /// Creates the scratch memory of `stream`, empty.
    pub fn new(host: Arc<dyn CudnnHost>, stream: Stream) -> StreamScratch {
        StreamScratch { host, stream, blocks: Vec::new() }
    }

    /// Returns the address of at least `bytes` bytes, aligned to 256 bytes.
    pub fn ensure_bytes(&mut self, bytes: usize) -> Result<u64, DriverError> {
        if let Some(last) = self.blocks.last()
            && last.bytes >= bytes
        {
            return Ok(last.address);
        }
        let bytes = bytes.next_multiple_of(SCRATCH_GRANULARITY);
        let address = self.host.alloc(self.stream, bytes)?;
        self.blocks.push(ScratchBlock { address, bytes });
        Ok(address)
    }
}

impl Drop for StreamScratch {
    fn drop(&mut self) {
        for block in &self.blocks {
            // SAFETY: allocated above with these bytes and freed once; `CudnnHost::free` waits for pending work. Errors
            // cannot be handled here.
            let _ = unsafe { self.host.free(self.stream, block.address, block.bytes) };
        }
    }
}

/// Divides a block of memory into parts that are aligned to 256 bytes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct ScratchLayout {
    /// Total size of all parts so far, in bytes.
    pub total: usize,
}

impl ScratchLayout {
    /// Returns the offset of the next part.
    pub fn add_part(&mut self, bytes: usize) -> usize {
        let start = self.total;
        self.total += bytes.next_multiple_of(256);
        start
    }
}
