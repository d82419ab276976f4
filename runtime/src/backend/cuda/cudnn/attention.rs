//! Fused attention by cuDNN, as the backend calls it.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::backend::AttentionShape;
use crate::backend::cuda::{AttentionChoice, DriverError, FusedAttention, Stream};

use super::cache::{Built, Cache};
use super::graph::{Operand, Scalar};
use super::host::Host;
use super::library::cudnn_present;
use super::limits;
use super::options::CudnnOptions;
use super::plan::{Arguments, Plan};
use super::ready::{Place, Ready};
use super::scratch::Scratch;
use super::sizes::{Pass, Sizes};
use super::target::{self, Handle, Target};

/// Attention by cuDNN on one device.
///
/// The execution plan of a shape is built on first use, which takes about a second, and kept. Each stream has its own
/// handle and scratch memory, so calls on different streams, from any threads, are independent. Scratch memory only
/// grows and is freed with its stream: a CUDA graph may use it until then, on one stream at a time. A shape must be
/// used once before it is captured, because plans and scratch memory cannot be created during capture.
pub struct CudnnAttention {
    // Dropped in this order: stream resources after plans, the target last.
    plans: Cache<(Sizes, Pass), Ready>,
    /// The division of each shape's batch, fixed on first use: free memory changes later, results must not.
    parts: Cache<(Sizes, Pass), Part>,
    lanes: Mutex<HashMap<Stream, Arc<Mutex<Lane>>>>,
    /// Largest scratch size of any stream, in bytes.
    taken: AtomicUsize,
    target: Mutex<Target>,
    capability: (u32, u32),
    options: CudnnOptions,
    host: Arc<dyn Host>,
}

/// The division of a batch into calls of this many samples.
struct Part {
    samples: usize,
    ready: Arc<Ready>,
}

/// Handle and scratch memory of one stream.
struct Lane {
    handle: Handle,
    scratch: Scratch,
}

impl CudnnAttention {
    /// Creates attention for the device of `host` with this compute capability. The error is the reason why the library
    /// cannot be used.
    pub fn new(
        host: Arc<dyn Host>,
        capability: (u32, u32),
        options: CudnnOptions,
    ) -> Result<CudnnAttention, String> {
        cudnn_present()?;
        host.make_current().map_err(|error| error.to_string())?;
        let handle = Handle::new().map_err(|error| error.to_string())?;
        let target = Mutex::new(Target { place: target::Place::Here(handle), capability });
        Ok(CudnnAttention {
            plans: Cache::new(),
            parts: Cache::new(),
            lanes: Mutex::default(),
            taken: AtomicUsize::new(0),
            target,
            capability,
            options,
            host,
        })
    }

    /// Returns the reason why a pass is not supported for a rank that may allocate `free_bytes` more bytes; `None` if
    /// it is.
    pub fn why_not(&self, shape: &AttentionShape, pass: Pass, room: usize) -> Option<String> {
        self.part(shape, pass, room).err()
    }

    /// Returns the samples per call of a pass; `None` if the shape is unused or not supported.
    pub fn samples(&self, shape: &AttentionShape, pass: Pass) -> Option<usize> {
        Some(self.parts.known(&(Sizes::from(shape), pass))?.ok()?.samples)
    }

    /// Returns the implementations of all shapes used so far.
    pub fn choices(&self) -> Vec<AttentionChoice> {
        let choice = |((sizes, pass), part): ((Sizes, Pass), Built<Part>)| AttentionChoice {
            name: format!("{pass}, {sizes}"),
            batch: sizes.batch as usize,
            samples: part.as_ref().ok().map(|part| part.samples),
            scratch: part.as_ref().map_or(0, |part| part.ready.bytes),
            kernels: match part {
                Ok(part) => match part.ready.plan.kernels() {
                    Ok(kernels) => kernels.join(" "),
                    Err(error) => error.to_string(),
                },
                Err(why) => why,
            },
        };
        self.parts.all().into_iter().map(choice).collect()
    }

    /// Frees the resources of `stream`. The stream, and CUDA graphs captured on it, must not be used afterwards.
    pub fn forget(&self, stream: Stream) -> Result<(), DriverError> {
        self.host.make_current()?;
        let lane = lock(&self.lanes).remove(&stream);
        drop(lane);
        Ok(())
    }

    /// Returns the backward pass that the options select.
    pub fn backward_pass(&self) -> Pass {
        Pass::Backward { deterministic: self.options.deterministic }
    }

    fn ready(&self, shape: &AttentionShape, pass: Pass) -> Result<Arc<Ready>, String> {
        let sizes = Sizes::from(shape);
        self.plans.get((sizes, pass), || {
            limits::check(&sizes, pass, self.capability)?;
            self.host.make_current().map_err(|error| error.to_string())?;
            let plan =
                Plan::new(sizes, pass, &lock(&self.target)).map_err(|error| error.to_string())?;
            Ok(Ready::new(plan, shape.batch))
        })
    }

    fn part(&self, shape: &AttentionShape, pass: Pass, room: usize) -> Result<Arc<Part>, String> {
        self.parts.get((Sizes::from(shape), pass), || self.divide(shape, pass, room))
    }

    /// Returns the largest equal parts of a batch whose scratch memory is within the limit.
    fn divide(&self, shape: &AttentionShape, pass: Pass, room: usize) -> Result<Part, String> {
        let unused = self.host.unused().map_err(|error| error.to_string())?;
        // Scratch memory that a stream already has is not allocated again.
        let limit =
            self.options.scratch.bytes(unused.min(room)).max(self.taken.load(Ordering::Relaxed));
        let mut samples = shape.batch;
        loop {
            let part = AttentionShape { batch: samples, ..*shape };
            let ready = self.ready(&part, pass)?;
            if ready.bytes <= limit {
                return Ok(Part { samples, ready });
            }
            // Scratch memory grows with the number of samples.
            let fitting = (limit / ready.bytes.div_ceil(samples)).max(1).min(samples - 1);
            let smaller = (1..=fitting).rev().find(|few| shape.batch.is_multiple_of(*few));
            samples = smaller.filter(|_| ready.can_be_part()).ok_or_else(|| {
                let (bytes, sizes) = (ready.bytes, Sizes::from(&part));
                format!(
                    "cuDNN needs {bytes} bytes of scratch for {pass}, {sizes}; the limit is {limit}"
                )
            })?;
        }
    }

    fn lane(&self, stream: Stream) -> Result<Arc<Mutex<Lane>>, DriverError> {
        let mut lanes = lock(&self.lanes);
        if let Some(lane) = lanes.get(&stream) {
            return Ok(Arc::clone(lane));
        }
        let mut handle = Handle::new()?;
        // SAFETY: a live stream of the current device.
        unsafe { handle.set_stream(self.host.raw_stream(stream)?) }?;
        let scratch = Scratch::new(Arc::clone(&self.host), stream);
        let lane = Arc::new(Mutex::new(Lane { handle, scratch }));
        lanes.insert(stream, Arc::clone(&lane));
        Ok(lane)
    }

    /// # Safety
    /// As [`FusedAttention`]; `address` returns the address of every operand of the pass that is not scratch.
    unsafe fn run(
        &self,
        stream: Stream,
        shape: &AttentionShape,
        pass: Pass,
        address: &dyn Fn(Operand) -> u64,
    ) -> Result<(), DriverError> {
        let part = self.part(shape, pass, usize::MAX).map_err(DriverError::Library)?;
        let Part { samples, ready } = &*part;
        self.host.make_current()?;
        let lane = self.lane(stream)?;
        let mut lane = lock(&lane);
        let scratch = lane.scratch.at_least(ready.bytes)?;
        self.taken.fetch_max(ready.bytes, Ordering::Relaxed);
        for first in (0..shape.batch).step_by(*samples) {
            let operand = |operand| match ready.place(operand) {
                Place::Scratch { at } => scratch + at as u64,
                Place::Given { sample } => address(operand) + (first * sample) as u64,
            };
            let arguments = Arguments {
                operand: &operand,
                scalar: &|scalar| match scalar {
                    Scalar::Scale => shape.scale,
                    Scalar::Masked => f32::NEG_INFINITY,
                    Scalar::One => 1.0,
                },
                workspace: scratch + ready.workspace_at as u64,
            };
            ready.check(&arguments)?;
            // SAFETY: the caller guarantees its addresses, of which these are parts. Scratch memory is large enough for
            // the plan, and this stream, its only user, executes in order.
            unsafe { ready.plan.execute(&mut lane.handle, &arguments) }?;
        }
        Ok(())
    }
}

impl FusedAttention for CudnnAttention {
    fn supports(&self, shape: &AttentionShape) -> bool {
        self.why_not(shape, Pass::Forward, usize::MAX).is_none()
    }

    fn supports_backward(&self, shape: &AttentionShape, room: usize) -> bool {
        self.why_not(shape, self.backward_pass(), room).is_none()
    }

    unsafe fn forward(
        &self,
        stream: Stream,
        shape: &AttentionShape,
        q: u64,
        k: u64,
        v: u64,
        out: u64,
        lse: u64,
    ) -> Result<(), DriverError> {
        let address = |operand| match operand {
            Operand::Q => q,
            Operand::K => k,
            Operand::V => v,
            Operand::Out => out,
            Operand::Lse => lse,
            other => unreachable!("the forward pass has no {other:?}"),
        };
        // SAFETY: as the caller promises.
        unsafe { self.run(stream, shape, Pass::Forward, &address) }
    }

    unsafe fn backward(
        &self,
        stream: Stream,
        shape: &AttentionShape,
        q: u64,
        k: u64,
        v: u64,
        out: u64,
        lse: u64,
        dout: u64,
        dq: u64,
        dk: u64,
        dv: u64,
    ) -> Result<(), DriverError> {
        let address = |operand| match operand {
            Operand::Q => q,
            Operand::K => k,
            Operand::V => v,
            Operand::Out => out,
            Operand::Lse => lse,
            Operand::DOut => dout,
            Operand::DQ => dq,
            Operand::DK => dk,
            Operand::DV => dv,
            scratch => unreachable!("{scratch:?} is scratch"),
        };
        // SAFETY: as the caller promises.
        unsafe { self.run(stream, shape, self.backward_pass(), &address) }
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
