//! Attention by the library, as the backend calls it.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::backend::AttentionShape;
use crate::backend::cuda::{DriverError, FusedAttention, Stream};

use super::cache::Cache;
use super::graph::{Element, Operand, Scalar, Tensor};
use super::host::Host;
use super::library::cudnn_present;
use super::limits;
use super::lower::ALIGNMENT;
use super::plan::{Arguments, Plan};
use super::scratch::{Division, Scratch};
use super::sizes::{Pass, Sizes};
use super::target::{Handle, Place, Target};

/// What [`CudnnAttention`] may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CudnnOptions {
    /// Gradients have the same bits in every run. On Ampere and Hopper, where the library adds up gradients of queries by
    /// atomics otherwise, this makes it store the gradients of all scores and read them again: two bytes of scratch for
    /// each, so that memory grows with the square of the sequence.
    pub deterministic: bool,
    /// Most bytes of device memory that a call may use beside its operands. Sizes that need more are not supported.
    pub scratch_limit: usize,
}

impl Default for CudnnOptions {
    /// Deterministic, with up to 4 GiB.
    fn default() -> CudnnOptions {
        CudnnOptions { deterministic: true, scratch_limit: 4 << 30 }
    }
}

/// Attention by cuDNN on one device.
///
/// Plans are built when a shape is first asked for, which takes around a second, and kept. Each stream has its own handle
/// and scratch, so calls on different streams, from any threads, do not disturb each other. Scratch only grows, and is
/// given back with the stream: a recorded graph may use it as long, on one stream at a time. Shapes
/// have to be asked for once before they are recorded, since plans and scratch cannot be made while a stream records.
pub struct CudnnAttention {
    // Lanes are given back after plans, and the target last.
    plans: Cache<(Sizes, Pass), Ready>,
    lanes: Mutex<HashMap<Stream, Arc<Mutex<Lane>>>>,
    target: Mutex<Target>,
    capability: (u32, u32),
    options: CudnnOptions,
    host: Arc<dyn Host>,
}

/// A plan, and how its scratch is divided.
struct Ready {
    plan: Plan,
    workspace_at: usize,
    scratch_at: Vec<(Operand, usize)>,
    bytes: usize,
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
        let target = Mutex::new(Target { place: Place::Here(handle), capability });
        Ok(CudnnAttention {
            plans: Cache::new(),
            lanes: Mutex::default(),
            target,
            capability,
            options,
            host,
        })
    }

    /// Why a pass of these sizes is not supported, if it is not.
    pub fn why_not(&self, shape: &AttentionShape, pass: Pass) -> Option<String> {
        self.ready(shape, pass).err()
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
            let plan = Plan::new(sizes, pass, &lock(&self.target)).map_err(|error| error.to_string())?;
            let ready = Ready::new(plan);
            let (bytes, limit) = (ready.bytes, self.options.scratch_limit);
            if bytes > limit {
                return Err(format!(
                    "cuDNN needs {bytes} bytes of scratch for {pass}, {sizes}; the limit is {limit}",
                ));
            }
            Ok(ready)
        })
    }

    fn lane(&self, stream: Stream) -> Result<Arc<Mutex<Lane>>, DriverError> {
        let mut lanes = lock(&self.lanes);
        if let Some(lane) = lanes.get(&stream) {
            return Ok(Arc::clone(lane));
        }
        let mut handle = Handle::new()?;
        // SAFETY: the host's stream, on the device that it has made current.
        unsafe { handle.set_stream(self.host.raw_stream(stream)?) }?;
        let scratch = Scratch::new(Arc::clone(&self.host));
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
        let ready = self.ready(shape, pass).map_err(DriverError::Library)?;
        self.host.make_current()?;
        let lane = self.lane(stream)?;
        let mut lane = lock(&lane);
        let scratch = lane.scratch.at_least(ready.bytes)?;
        let operand = |operand| match ready.scratch_at.iter().find(|(own, _)| *own == operand) {
            Some((_, at)) => scratch + *at as u64,
            None => address(operand),
        };
        for (_, of) in ready.plan.graph().operands() {
            if !operand(of).is_multiple_of(ALIGNMENT) {
                return Err(DriverError::Library(format!(
                    "cuDNN takes operands at multiples of {ALIGNMENT} bytes, and {of:?} is at {:#x}",
                    operand(of)
                )));
            }
        }
        let scalar = |scalar| match scalar {
            Scalar::Scale => shape.scale,
            Scalar::Masked => f32::NEG_INFINITY,
            Scalar::One => 1.0,
        };
        let workspace = scratch + ready.workspace_at as u64;
        let arguments = Arguments { operand: &operand, scalar: &scalar, workspace };
        // SAFETY: the caller promises it of its addresses. Scratch is large enough for its parts, and work on this stream,
        // the only one that uses it, is done in order.
        unsafe { ready.plan.execute(&mut lane.handle, &arguments) }
    }
}

impl Ready {
    fn new(plan: Plan) -> Ready {
        let mut division = Division::default();
        let workspace_at = division.part(plan.workspace());
        let mut scratch_at = Vec::new();
        for (id, operand) in plan.graph().operands() {
            if matches!(operand, Operand::RowSum | Operand::DQSum) {
                scratch_at.push((operand, division.part(bytes(&plan.graph().tensors[id.0]))));
            }
        }
        Ready { plan, workspace_at, scratch_at, bytes: division.total }
    }
}

/// Bytes of a tensor in device memory.
fn bytes(tensor: &Tensor) -> usize {
    let elements: i64 = tensor.sizes.iter().product();
    let each = match tensor.element {
        Element::Bool => 1,
        Element::Bf16 => 2,
        Element::F32 | Element::I32 => 4,
    };
    elements as usize * each
}

impl FusedAttention for CudnnAttention {
    fn supports(&self, shape: &AttentionShape) -> bool {
        self.why_not(shape, Pass::Forward).is_none()
    }

    fn supports_backward(&self, shape: &AttentionShape) -> bool {
        self.why_not(shape, self.backward_pass()).is_none()
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
