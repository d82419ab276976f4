//! Attention by the library, as the backend calls it.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::backend::AttentionShape;
use crate::backend::cuda::{
    AttentionChoice, AttentionGradients, AttentionOperands, DriverError, FusedAttention, Stream,
};

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
/// Plans are built when a shape is first asked for, which takes around a second, and kept. Each stream has its own handle
/// and scratch, so calls on different streams, from any threads, do not disturb each other. Scratch only grows, and is
/// given back with the stream: a recorded graph may use it as long, on one stream at a time. Shapes
/// have to be asked for once before they are recorded, since plans and scratch cannot be made while a stream records.
pub struct CudnnAttention {
    // Lanes are given back after plans, and the target last.
    plans: Cache<(Sizes, Pass), Ready>,
    /// How each shape is computed, decided when it is first asked for: memory is different later, results are not.
    parts: Cache<(Sizes, Pass), Part>,
    lanes: Mutex<HashMap<Stream, Arc<Mutex<Lane>>>>,
    /// The most bytes of scratch that a stream has.
    taken: AtomicUsize,
    target: Mutex<Target>,
    capability: (u32, u32),
    options: CudnnOptions,
    host: Arc<dyn Host>,
}

/// How a batch is computed: so many samples at a time.
struct Part {
    samples: usize,
    ready: Arc<Ready>,
}

/// What calls on one stream use.
struct Lane {
    handle: Handle,
    scratch: Scratch,
}

impl CudnnAttention {
    /// Attention on the device of `host`, which has this compute capability. The error says why the library cannot be
    /// used.
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

    /// Why a pass of these sizes is not supported, if it is not, for a rank that may take `room` more bytes.
    pub fn why_not(&self, shape: &AttentionShape, pass: Pass, room: usize) -> Option<String> {
        self.part(shape, pass, room).err()
    }

    /// The samples of each part in which a pass of these sizes is computed; `None` before it was asked for, or if it is not
    /// supported.
    pub fn samples(&self, shape: &AttentionShape, pass: Pass) -> Option<usize> {
        Some(self.parts.known(&(Sizes::from(shape), pass))?.ok()?.samples)
    }

    /// How the shapes are computed that were asked for so far.
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

    /// Gives back what calls on `stream` have used. The stream and graphs recorded from it are not used any more.
    pub fn forget(&self, stream: Stream) -> Result<(), DriverError> {
        self.host.make_current()?;
        let lane = lock(&self.lanes).remove(&stream);
        drop(lane);
        Ok(())
    }

    /// The backward pass that the options ask for.
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

    /// The largest equal parts of a batch that need no more scratch than there may be.
    fn divide(&self, shape: &AttentionShape, pass: Pass, room: usize) -> Result<Part, String> {
        let unused = self.host.unused().map_err(|error| error.to_string())?;
        // What a stream has already, it need not take again.
        let limit =
            self.options.scratch.bytes(unused.min(room)).max(self.taken.load(Ordering::Relaxed));
        let mut samples = shape.batch;
        loop {
            let part = AttentionShape { batch: samples, ..*shape };
            let ready = self.ready(&part, pass)?;
            if ready.bytes <= limit {
                return Ok(Part { samples, ready });
            }
            // Scratch grows with the samples.
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
        // SAFETY: the host's stream, on the device that it has made current.
        unsafe { handle.set_stream(self.host.raw_stream(stream)?) }?;
        let scratch = Scratch::new(Arc::clone(&self.host), stream);
        let lane = Arc::new(Mutex::new(Lane { handle, scratch }));
        lanes.insert(stream, Arc::clone(&lane));
        Ok(lane)
    }

    /// # Safety
    /// As [`FusedAttention`]; `address` knows every operand of the pass that is not scratch.
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
            // SAFETY: the caller promises it of its addresses, of which these are a part. Scratch is large enough for its
            // parts, and work on this stream, the only one that uses it, is done in order.
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
        operands: &AttentionOperands,
    ) -> Result<(), DriverError> {
        let AttentionOperands { q, k, v, out, lse } = *operands;
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
        operands: &AttentionOperands,
        gradients: &AttentionGradients,
    ) -> Result<(), DriverError> {
        let AttentionOperands { q, k, v, out, lse } = *operands;
        let AttentionGradients { dout, dq, dk, dv } = *gradients;
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
        // Handles are given back to the context that they were made in. Nobody could act on an error here.
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
