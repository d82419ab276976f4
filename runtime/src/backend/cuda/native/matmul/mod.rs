//! Matrix products by cuBLASLt, with a plan for each shape.

mod candidates;
mod descriptors;
mod kept;
mod layout;
mod plan;

use std::collections::HashMap;
use std::ffi::c_void;
use std::io::Write;
use std::sync::{Arc, Mutex, Once};

use cudarc::cublaslt::sys::{cublasLtHandle_t, cublasLtMatmulAlgo_t};

use super::api::{CublasLtApi, cublaslt};
use super::context::Context;
use super::memory;
use crate::backend::DType;
use crate::backend::cuda::gpu::lock;
use crate::backend::cuda::{Driver, DriverError, Ending, MatMul, MatMulOperands, Stream};
use candidates::Alignment;
use descriptors::{Descriptors, call};
use kept::Kept;
use plan::{Key, Plan};

/// Bytes that a product may use beside its operands: what the library's fastest ways need on Hopper, and room for the parts
/// of sums where a long one is cut for few and small tiles.
const WORKSPACE: usize = 64 << 20;

/// The library on one device, and the plans that were made so far.
pub struct MatMuls {
    api: &'static CublasLtApi,
    handle: cublasLtHandle_t,
    plans: Mutex<HashMap<Key, Arc<Plan>>>,
    /// Whether there are products of a shape.
    known: Mutex<HashMap<MatMul, bool>>,
    workspaces: Mutex<HashMap<Stream, u64>>,
    /// That it has refused one.
    told: Once,
    /// Take the fastest way to compute a product, also where its result has other bits than that of the first proposal.
    any_bits: bool,
    kept: Kept,
}

// SAFETY: the handle may be used from any thread, one after another or at once.
unsafe impl Send for MatMuls {}
// SAFETY: as above.
unsafe impl Sync for MatMuls {}

impl MatMuls {
    /// On the device of the current context.
    pub fn new(context: &Context, any_bits: bool) -> Result<MatMuls, DriverError> {
        let api = cublaslt()?;
        let kept = Kept::new(&context.properties, api.version, any_bits, WORKSPACE);
        let api: &'static CublasLtApi = api;
        let mut handle = std::ptr::null_mut();
        // SAFETY: it sets the handle.
        unsafe { call!(api, cublasLtCreate(&mut handle)) }?;
        let (plans, known, workspaces) = Default::default();
        Ok(MatMuls { api, handle, plans, known, workspaces, told: Once::new(), any_bits, kept })
    }

    /// Whether the library has products of a shape, of operands that are [aligned](MatMulOperands::ALIGNMENT).
    pub fn has(&self, shape: &MatMul) -> bool {
        if let Some(has) = lock(&self.known).get(shape) {
            return *has;
        }
        // Without a product of this kind there are others in its place, so that no answer of the library is a failure.
        let answer = self.ask(shape);
        if let Err(error) = &answer {
            self.note_refusal(shape, error);
        }
        *lock(&self.known).entry(*shape).or_insert(answer.is_ok())
    }

    /// An error unless the library has products of a shape, of aligned operands.
    fn ask(&self, shape: &MatMul) -> Result<(), DriverError> {
        let descriptors = Descriptors::new(self.api, shape)?;
        // It asks whether there are addresses, and does not follow them.
        descriptors.point_to(MatMulOperands::ALIGNMENT, MatMulOperands::ALIGNMENT)?;
        let alignment = Alignment([MatMulOperands::ALIGNMENT as u32; 3]);
        descriptors.candidates(self.handle, WORKSPACE, &alignment, 1).map(drop)
    }

    /// The library has no products of a shape, or so it says when it is to compute one.
    fn note_refusal(&self, shape: &MatMul, error: &DriverError) {
        lock(&self.known).insert(*shape, false);
        self.told.call_once(|| {
            let _ = writeln!(
                std::io::stderr(),
                "{error}, for {shape}: what comes with a product is computed by kernels of its own where cuBLASLt has no \
                 such product"
            );
        });
    }

    /// `c (+)= op(a) * op(b)` of row-major matrices, none of whose sizes is 0, with its ending.
    ///
    /// # Safety
    /// As [`Driver::matmul`](crate::backend::cuda::Driver::matmul).
    pub unsafe fn run(
        &self,
        driver: &dyn Driver,
        context: &Context,
        stream: Stream,
        shape: &MatMul,
        operands: &MatMulOperands,
    ) -> Result<(), DriverError> {
        let workspace = self.workspace(context, stream)?;
        let planned = self.planned(driver, context, stream, shape, operands, workspace);
        let submitted = planned.and_then(|plan| {
            // SAFETY: as the caller promises.
            unsafe {
                self.submit(stream, shape, &plan.descriptors, plan.algorithm(), operands, workspace)
            }
        });
        if let (Err(error @ DriverError::Refused { .. }), true) =
            (&submitted, shape.ending != Ending::Plain)
        {
            self.note_refusal(shape, error);
        }
        submitted
    }

    /// Gives back what `stream` has used; all of its work is done.
    pub fn forget(&self, context: &Context, stream: Stream) -> Result<(), DriverError> {
        match lock(&self.workspaces).remove(&stream) {
            // SAFETY: it was allocated here, and nothing uses it any more.
            Some(workspace) => unsafe {
                memory::free_scratch(context, stream, workspace, WORKSPACE)
            },
            None => Ok(()),
        }
    }

    /// Gives everything back; all work is done.
    pub fn close(&self, context: &Context) {
        for (stream, workspace) in lock(&self.workspaces).drain() {
            // SAFETY: as in `forget`. Nobody could act on an error.
            let _ = unsafe { memory::free_scratch(context, stream, workspace, WORKSPACE) };
        }
        lock(&self.plans).clear();
        // SAFETY: it is not used any more.
        unsafe { (self.api.cublasLtDestroy)(self.handle) };
    }

    /// The workspace of a stream: products on one stream are computed one after another.
    fn workspace(&self, context: &Context, stream: Stream) -> Result<u64, DriverError> {
        let mut workspaces = lock(&self.workspaces);
        if let Some(workspace) = workspaces.get(&stream) {
            return Ok(*workspace);
        }
        let workspace = memory::alloc_scratch(context, stream, WORKSPACE)?;
        workspaces.insert(stream, workspace);
        Ok(workspace)
    }

    unsafe fn submit(
        &self,
        stream: Stream,
        shape: &MatMul,
        descriptors: &Descriptors,
        algorithm: &cublasLtMatmulAlgo_t,
        operands: &MatMulOperands,
        workspace: u64,
    ) -> Result<(), DriverError> {
        let api = self.api;
        let (alpha, beta) = (1.0f32, if shape.gemm.accumulate { 1.0f32 } else { 0.0 });
        let _pointed = descriptors.point_to(operands.vector, operands.inside)?;
        // SAFETY: as the caller promises; factors are read from the host during the call.
        unsafe {
            call!(
                api,
                cublasLtMatmul(
                    self.handle,
                    descriptors.operation,
                    (&raw const alpha).cast(),
                    // See `Product`: the factors change places.
                    operands.b as *const c_void,
                    descriptors.left,
                    operands.a as *const c_void,
                    descriptors.right,
                    (&raw const beta).cast(),
                    operands.c as *const c_void,
                    descriptors.result,
                    operands.c as *mut c_void,
                    descriptors.result,
                    algorithm,
                    workspace as *mut c_void,
                    WORKSPACE,
                    stream.0 as *mut _,
                )
            )
        }
    }
}

/// Whether a product of these dtypes is one that the library is asked for.
pub fn is_supported(shape: &MatMul) -> bool {
    matches!(
        (shape.factors, shape.result),
        (DType::Bf16, DType::Bf16 | DType::F32) | (DType::F32, DType::F32)
    ) && (shape.ending != Ending::Sums || shape.result == DType::F32)
}
