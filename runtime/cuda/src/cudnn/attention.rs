//! Fused attention by cuDNN, as the backend calls it.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{
    AttentionChoice, AttentionGradients, AttentionOperands, DriverError, FusedAttention,
    FusedShape, Stream,
};

use super::attention_graph::AttentionPass;
use super::attention_sizes::CudnnAttentionSizes;
use super::cache::{BuildCache, Built};
use super::graph::{GraphOperand, GraphScalar};
use super::library::{CudnnHandle, cudnn_present};
use super::limits::check_limits;
use super::options::{CudnnHost, CudnnOptions};
use super::plan::{ExecutionPlan, PlanArguments};
use super::target::{PlanTarget, TargetDevice};
use super::workspace::{OperandPlacement, PlacedPlan, StreamScratch};

/// Attention by cuDNN on one device.
///
/// The execution plan of a shape is built on first use, which takes about a second, and kept. Each stream has its own
/// handle and scratch memory, so calls on different streams, from any threads, are independent. Scratch memory only
/// grows and is freed with its stream: a CUDA graph may use it until then, on one stream at a time. A shape must be
/// used once before it is captured, because plans and scratch memory cannot be created during capture.
pub struct CudnnAttention {
    // Dropped in this order: stream resources after plans, the target last.
    plans: BuildCache<(CudnnAttentionSizes, AttentionPass), PlacedPlan>,
    /// The division of each shape's batch, fixed on first use: free memory changes later, results must not.
    divisions: BuildCache<(CudnnAttentionSizes, AttentionPass), BatchDivision>,
    streams: Mutex<HashMap<Stream, Arc<Mutex<StreamResources>>>>,
    /// Largest scratch size of any stream, in bytes.
    largest_scratch: AtomicUsize,
    target: Mutex<PlanTarget>,
    capability: (u32, u32),
    options: CudnnOptions,
    host: Arc<dyn CudnnHost>,
}

/// The division of a batch into calls of this many samples.
struct BatchDivision {
    samples: usize,
    placed: Arc<PlacedPlan>,
}

/// Handle and scratch memory of one stream.
struct StreamResources {
    handle: CudnnHandle,
    scratch: StreamScratch,
}

impl CudnnAttention {
    /// Creates attention for the device of `host` with this compute capability. The error is the reason why the library
    /// cannot be used.
    pub fn new(
        host: Arc<dyn CudnnHost>,
        capability: (u32, u32),
        options: CudnnOptions,
    ) -> Result<CudnnAttention, String> {
        cudnn_present()?;
        host.make_current().map_err(|error| error.to_string())?;
        let handle = CudnnHandle::new().map_err(|error| error.to_string())?;
        let target = Mutex::new(PlanTarget { device: TargetDevice::Present(handle), capability });
        Ok(CudnnAttention {
            plans: BuildCache::new(),
            divisions: BuildCache::new(),
            streams: Mutex::default(),
            largest_scratch: AtomicUsize::new(0),
            target,
            capability,
            options,
            host,
        })
    }

    /// Returns the reason why a pass is not supported for a rank that may allocate `free_bytes` more bytes; `None` if
    /// it is.
    pub fn refusal_reason(
        &self,
        shape: &FusedShape,
        pass: AttentionPass,
        free_bytes: usize,
    ) -> Option<String> {
        self.division(shape, pass, free_bytes).err()
    }

    /// Returns the samples per call of a pass; `None` if the shape is unused or not supported.
    pub fn samples(&self, shape: &FusedShape, pass: AttentionPass) -> Option<usize> {
        Some(self.divisions.built(&(CudnnAttentionSizes::from(shape), pass))?.ok()?.samples)
    }

    /// Returns the implementations of all shapes used so far.
    pub fn algorithm_choices(&self) -> Vec<AttentionChoice> {
        let choice = |((sizes, pass), division): (
            (CudnnAttentionSizes, AttentionPass),
            Built<BatchDivision>,
        )| {
            AttentionChoice {
                name: format!("{pass}, {sizes}"),
                batch: sizes.batch as usize,
                samples: division.as_ref().ok().map(|division| division.samples),
                scratch: division.as_ref().map_or(0, |division| division.placed.scratch_bytes),
                kernels: match division {
                    Ok(division) => match division.placed.plan.kernels() {
                        Ok(kernels) => kernels.join(" "),
                        Err(error) => error.to_string(),
                    },
                    Err(reason) => reason,
                },
            }
        };
        self.divisions.all_built().into_iter().map(choice).collect()
    }

    /// Frees the resources of `stream`. The stream, and CUDA graphs captured on it, must not be used after it.
    pub fn free_stream(&self, stream: Stream) -> Result<(), DriverError> {
        self.host.make_current()?;
        let resources = lock(&self.streams).remove(&stream);
        drop(resources);
        Ok(())
    }

    /// Returns the backward pass that the options select.
    pub fn backward_pass(&self) -> AttentionPass {
        AttentionPass::Backward { deterministic: self.options.deterministic }
    }

    /// Computes `out` and the log-sum-exp `lse`.
    ///
    /// # Safety
    /// As [`Attention`](crate::GpuCall::Attention).
    pub unsafe fn forward(
        &self,
        stream: Stream,
        shape: &FusedShape,
        operands: &AttentionOperands,
    ) -> Result<(), DriverError> {
        let address = |operand| match operand {
            GraphOperand::Q => operands.q,
            GraphOperand::K => operands.k,
            GraphOperand::V => operands.v,
            GraphOperand::Out => operands.out,
            GraphOperand::Lse => operands.lse,
            other => unreachable!("the forward pass has no {other:?}"),
        };
        // SAFETY: as the caller promises.
        unsafe { self.run_plan(stream, shape, AttentionPass::Forward, &address) }
    }

    /// Computes `dq`, `dk` and `dv`.
    ///
    /// # Safety
    /// As [`AttentionBackward`](crate::GpuCall::AttentionBackward).
    pub unsafe fn backward(
        &self,
        stream: Stream,
        shape: &FusedShape,
        operands: &AttentionOperands,
        gradients: &AttentionGradients,
    ) -> Result<(), DriverError> {
        let address = |operand| match operand {
            GraphOperand::Q => operands.q,
            GraphOperand::K => operands.k,
            GraphOperand::V => operands.v,
            GraphOperand::Out => operands.out,
            GraphOperand::Lse => operands.lse,
            GraphOperand::DOut => gradients.dout,
            GraphOperand::DQ => gradients.dq,
            GraphOperand::DK => gradients.dk,
            GraphOperand::DV => gradients.dv,
            scratch => unreachable!("{scratch:?} is scratch"),
        };
        // SAFETY: as the caller promises.
        unsafe { self.run_plan(stream, shape, self.backward_pass(), &address) }
    }

    /// Returns the plan of a pass, built on first use.
    fn placed_plan(
        &self,
        shape: &FusedShape,
        pass: AttentionPass,
    ) -> Result<Arc<PlacedPlan>, String> {
        let sizes = CudnnAttentionSizes::from(shape);
        self.plans.get((sizes, pass), || {
            check_limits(&sizes, pass, self.capability)?;
            self.host.make_current().map_err(|error| error.to_string())?;
            let plan = ExecutionPlan::new(sizes, pass, &lock(&self.target))
                .map_err(|error| error.to_string())?;
            Ok(PlacedPlan::new(plan))
        })
    }

    /// Returns the division of a batch, fixed on first use.
    fn division(
        &self,
        shape: &FusedShape,
        pass: AttentionPass,
        free_bytes: usize,
    ) -> Result<Arc<BatchDivision>, String> {
        self.divisions.get((CudnnAttentionSizes::from(shape), pass), || {
            self.divide_batch(shape, pass, free_bytes)
        })
    }

    /// Returns the largest equal parts of a batch whose scratch memory is within the limit.
    fn divide_batch(
        &self,
        shape: &FusedShape,
        pass: AttentionPass,
        free_bytes: usize,
    ) -> Result<BatchDivision, String> {
        let free_memory = self.host.free_memory().map_err(|error| error.to_string())?;
        // Scratch memory that a stream already has is not allocated again.
        let limit = self
            .options
            .scratch
            .bytes(free_memory.min(free_bytes))
            .max(self.largest_scratch.load(Ordering::Relaxed));
        let mut samples = shape.batch;
        loop {
            let part = FusedShape { batch: samples, ..*shape };
            let placed = self.placed_plan(&part, pass)?;
            if placed.scratch_bytes <= limit {
                return Ok(BatchDivision { samples, placed });
            }
            // Scratch memory grows with the number of samples.
            let fitting = (limit / placed.scratch_bytes.div_ceil(samples)).max(1).min(samples - 1);
            let smaller = (1..=fitting).rev().find(|few| shape.batch.is_multiple_of(*few));
            samples = smaller.filter(|_| placed.is_divisible()).ok_or_else(|| {
                let (bytes, sizes) = (placed.scratch_bytes, CudnnAttentionSizes::from(&part));
                format!(
                    "cuDNN needs {bytes} bytes of scratch for {pass}, {sizes}; the limit is {limit}"
                )
            })?;
        }
    }

    /// Returns the handle and scratch memory of a stream, created on first use.
    fn stream_resources(&self, stream: Stream) -> Result<Arc<Mutex<StreamResources>>, DriverError> {
        let mut streams = lock(&self.streams);
        if let Some(resources) = streams.get(&stream) {
            return Ok(Arc::clone(resources));
        }
        let mut handle = CudnnHandle::new()?;
        // SAFETY: a live stream of the current device.
        unsafe { handle.set_stream(self.host.raw_stream(stream)?) }?;
        let scratch = StreamScratch::new(Arc::clone(&self.host), stream);
        let resources = Arc::new(Mutex::new(StreamResources { handle, scratch }));
        streams.insert(stream, Arc::clone(&resources));
        Ok(resources)
    }

    /// # Safety
    /// See [`Driver`](crate::Driver); `address` returns the address of every operand of the pass that is not scratch.
    unsafe fn run_plan(
        &self,
        stream: Stream,
        shape: &FusedShape,
        pass: AttentionPass,
        address: &dyn Fn(GraphOperand) -> u64,
    ) -> Result<(), DriverError> {
        let division = self.division(shape, pass, usize::MAX).map_err(DriverError::Library)?;
        let BatchDivision { samples, placed } = &*division;
        self.host.make_current()?;
        let mask = CudnnAttentionSizes::from(shape).mask;
        let bound = |bound: Option<i64>| bound.expect("a graph with this bound") as f32;
        let resources = self.stream_resources(stream)?;
        let mut resources = lock(&resources);
        let scratch = resources.scratch.ensure_bytes(placed.scratch_bytes)?;
        self.largest_scratch.fetch_max(placed.scratch_bytes, Ordering::Relaxed);
        for first in (0..shape.batch).step_by(*samples) {
            let operand = |operand| match placed.placement(operand) {
                OperandPlacement::Scratch { offset } => scratch + offset as u64,
                OperandPlacement::Caller { sample_bytes } => {
                    address(operand) + (first * sample_bytes) as u64
                }
            };
            let arguments = PlanArguments {
                operand: &operand,
                scalar: &|scalar| match scalar {
                    GraphScalar::Scale => shape.scale,
                    GraphScalar::Masked => f32::NEG_INFINITY,
                    GraphScalar::RightBound => bound(mask.right),
                    GraphScalar::LeftBound => bound(mask.left),
                    GraphScalar::One => 1.0,
                },
                workspace: scratch + placed.workspace_offset as u64,
            };
            placed.check_alignment(&arguments)?;
            // SAFETY: the caller guarantees its addresses, and these are parts of them. Scratch memory is large enough
            // for the plan, and this stream, its only user, executes in order.
            unsafe { placed.plan.execute(&mut resources.handle, &arguments) }?;
        }
        Ok(())
    }
}

impl FusedAttention for CudnnAttention {
    fn supports(&self, shape: &FusedShape) -> bool {
        self.refusal_reason(shape, AttentionPass::Forward, usize::MAX).is_none()
    }

    fn supports_backward(&self, shape: &FusedShape, free_bytes: usize) -> bool {
        self.refusal_reason(shape, self.backward_pass(), free_bytes).is_none()
    }
}

impl Drop for CudnnAttention {
    fn drop(&mut self) {
        // Handles are destroyed in the context that created them. Errors cannot be handled here.
        let _ = self.host.make_current();
    }
}

impl fmt::Debug for CudnnAttention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudnnAttention({:?}, {:?})", self.capability, self.options)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
