//! Matmuls by cuBLASLt, with a plan per shape.

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

/// Workspace of a matmul, in bytes: enough for the fastest algorithms on Hopper, and for the partial sums of split-k.
const WORKSPACE: usize = 64 << 20;

/// cuBLASLt on one device, with the plans made so far.
pub struct MatMuls {
    api: &'static CublasLtApi,
    handle: cublasLtHandle_t,
    plans: Mutex<HashMap<Key, Arc<Plan>>>,
    /// Shapes known to be supported or refused.
    known: Mutex<HashMap<MatMul, bool>>,
    workspaces: Mutex<HashMap<Stream, u64>>,
    /// Guards the one-time warning about a refused epilogue.
    told: Once,
    /// Permits algorithms whose results are not bitwise equal to the first proposal's.
    any_bits: bool,
    kept: Kept,
}

// SAFETY: the handle may be used from any thread, also concurrently.
unsafe impl Send for MatMuls {}
// SAFETY: as above.
unsafe impl Sync for MatMuls {}

impl MatMuls {
    /// Creates a handle for the device of the current context.
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

    /// Returns true if matmuls of a shape are supported for [aligned](MatMulOperands::ALIGNMENT) operands.
    pub fn has(&self, shape: &MatMul) -> bool {
        if let Some(has) = lock(&self.known).get(shape) {
            return *has;
        }
        // An unsupported epilogue has a fallback, so no answer of the library is a failure.
        let answer = self.ask(shape);
        if let Err(error) = &answer {
            self.note_refusal(shape, error);
        }
        *lock(&self.known).entry(*shape).or_insert(answer.is_ok())
    }

    /// Returns an error unless the library supports matmuls of a shape for aligned operands.
    fn ask(&self, shape: &MatMul) -> Result<(), DriverError> {
        let descriptors = Descriptors::new(self.api, shape)?;
        // The library requires that addresses are set, and does not dereference them.
        descriptors.point_to(MatMulOperands::ALIGNMENT, MatMulOperands::ALIGNMENT)?;
        let alignment = Alignment([MatMulOperands::ALIGNMENT as u32; 3]);
        descriptors.candidates(self.handle, WORKSPACE, &alignment, 1).map(drop)
    }

    /// Records that matmuls of a shape are not supported, as the heuristic or an execution reported.
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

    /// Computes `c (+)= op(a) * op(b)` of row-major matrices of positive sizes, with its epilogue.
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

    /// Frees the workspace of `stream`, whose work is done.
    pub fn forget(&self, context: &Context, stream: Stream) -> Result<(), DriverError> {
        match lock(&self.workspaces).remove(&stream) {
            // SAFETY: allocated here, and nothing uses it any more.
            Some(workspace) => unsafe {
                memory::free_scratch(context, stream, workspace, WORKSPACE)
            },
            None => Ok(()),
        }
    }

    /// Frees everything; all work is done.
    pub fn close(&self, context: &Context) {
        for (stream, workspace) in lock(&self.workspaces).drain() {
            // SAFETY: as in `free_stream`. Errors cannot be handled here.
            let _ = unsafe { memory::free_scratch(context, stream, workspace, WORKSPACE) };
        }
        lock(&self.plans).clear();
        // SAFETY: not used any more.
        unsafe { (self.api.cublasLtDestroy)(self.handle) };
    }

    /// Returns the workspace of a stream, shared because matmuls on one stream run one after another.
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
        // SAFETY: as the caller promises; alpha and beta are host values that are read during the call.
        unsafe {
            call!(
                api,
                cublasLtMatmul(
                    self.handle,
                    descriptors.operation,
                    (&raw const alpha).cast(),
                    // The inputs change places: see `ColumnMajorMatMul`.
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

/// Returns true if cuBLASLt has matmuls of these dtypes.
pub fn is_supported(shape: &MatMul) -> bool {
    matches!(
        (shape.factors, shape.result),
        (DType::Bf16, DType::Bf16 | DType::F32) | (DType::F32, DType::F32)
    ) && (shape.ending != Ending::Sums || shape.result == DType::F32)
}
