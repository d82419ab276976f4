//! Matmuls by cuBLASLt, with a plan per shape.

mod autotune_cache;
mod candidates;
mod descriptors;
mod layout;
mod plan;

use std::collections::HashMap;
use std::ffi::c_void;
use std::io::Write;
use std::sync::{Arc, Mutex, Once};

use cudarc::cublaslt::sys::{cublasLtHandle_t, cublasLtMatmulAlgo_t};

use super::api::{CublasLtApi, cublaslt};
use super::context::DeviceContext;
use super::memory;
use crate::gpu::lock_unpoisoned;
use crate::{Driver, DriverCalls, DriverError, MatMul, MatMulEpilogue, MatMulOperands, Stream};
use autotune_cache::AutotuneCache;
use candidates::OperandAlignment;
use descriptors::{MatMulDescriptors, call};
use meshwright_backend::{DType, Gemm};
use plan::{MatMulPlan, PlanKey};

/// Workspace of a matmul, in bytes: enough for the fastest algorithms on Hopper, and for the partial sums of split-k.
const WORKSPACE_BYTES: usize = 64 << 20;

/// cuBLASLt on one device, with the plans made so far.
pub struct CublasLtMatMuls {
    api: &'static CublasLtApi,
    handle: cublasLtHandle_t,
    plans: Mutex<HashMap<PlanKey, Arc<MatMulPlan>>>,
    /// True for shapes that cuBLASLt supports, false for those that it refuses.
    supported: Mutex<HashMap<MatMul, bool>>,
    workspaces: Mutex<HashMap<Stream, u64>>,
    /// Guards the one-time warning about a refused epilogue.
    warned: Once,
    /// Permits algorithms whose results are not bitwise equal to the first proposal's.
    allow_nondeterministic: bool,
    autotune_cache: AutotuneCache,
}

// SAFETY: the handle may be used from any thread, also concurrently.
unsafe impl Send for CublasLtMatMuls {}
// SAFETY: as above.
unsafe impl Sync for CublasLtMatMuls {}

impl CublasLtMatMuls {
    /// Creates a handle for the device of the current context.
    pub fn new(
        context: &DeviceContext,
        allow_nondeterministic: bool,
    ) -> Result<CublasLtMatMuls, DriverError> {
        let api = cublaslt()?;
        let autotune_cache = AutotuneCache::new(
            &context.properties,
            api.version,
            allow_nondeterministic,
            WORKSPACE_BYTES,
        );
        let api: &'static CublasLtApi = api;
        let mut handle = std::ptr::null_mut();
        // SAFETY: sets the handle.
        unsafe { call!(api, cublasLtCreate(&mut handle)) }?;
        let (plans, supported, workspaces) = Default::default();
        Ok(CublasLtMatMuls {
            api,
            handle,
            plans,
            supported,
            workspaces,
            warned: Once::new(),
            allow_nondeterministic,
            autotune_cache,
        })
    }

    /// Returns true if matmuls of a shape are supported for [aligned](MatMulOperands::ALIGNMENT) operands.
    pub fn is_supported(&self, shape: &MatMul) -> bool {
        let Gemm { m, n, k, .. } = shape.gemm;
        if m == 0 || n == 0 || k == 0 || !has_dtypes(shape) {
            return false;
        }
        if let Some(has) = lock_unpoisoned(&self.supported).get(shape) {
            return *has;
        }
        // An unsupported epilogue has a fallback, so no answer of the library is a failure.
        let answer = self.query_support(shape);
        if let Err(error) = &answer {
            self.note_unsupported(shape, error);
        }
        *lock_unpoisoned(&self.supported).entry(*shape).or_insert(answer.is_ok())
    }

    /// Returns an error unless the library supports matmuls of a shape for aligned operands.
    fn query_support(&self, shape: &MatMul) -> Result<(), DriverError> {
        let descriptors = MatMulDescriptors::new(self.api, shape)?;
        // The library requires that addresses are set, and does not dereference them.
        descriptors.set_epilogue_pointers(MatMulOperands::ALIGNMENT, MatMulOperands::ALIGNMENT)?;
        let alignment = OperandAlignment([MatMulOperands::ALIGNMENT as u32; 3]);
        descriptors.candidates(self.handle, WORKSPACE_BYTES, &alignment, 1).map(drop)
    }

    /// Records that matmuls of a shape are not supported, as the heuristic or an execution reported.
    fn note_unsupported(&self, shape: &MatMul, error: &DriverError) {
        lock_unpoisoned(&self.supported).insert(*shape, false);
        self.warned.call_once(|| {
            let _ = writeln!(
                std::io::stderr(),
                "{error}, for {shape}: separate kernels compute epilogues that cuBLASLt does not support"
            );
        });
    }

    /// Computes `c (+)= op(a) * op(b)` of row-major matrices, with its epilogue.
    ///
    /// # Safety
    /// As [`MatMul`](crate::GpuCall::MatMul).
    pub unsafe fn execute(
        &self,
        driver: &dyn Driver,
        context: &DeviceContext,
        stream: Stream,
        shape: &MatMul,
        operands: &MatMulOperands,
    ) -> Result<(), DriverError> {
        let gemm = &shape.gemm;
        let is_plain = shape.epilogue == MatMulEpilogue::Plain;
        if is_plain && (gemm.m == 0 || gemm.n == 0 || (gemm.k == 0 && gemm.accumulate)) {
            return Ok(());
        }
        if is_plain && gemm.k == 0 {
            let bytes = gemm.m * gemm.n * shape.result.bytes();
            // SAFETY: as the caller promises.
            return unsafe { driver.zero(stream, operands.c, bytes) };
        }
        if !has_dtypes(shape) {
            let (inputs, result) = (shape.inputs, shape.result);
            return Err(DriverError::Call {
                call: "cublasLtMatmul",
                reason: format!("no matmul has {inputs} inputs and a {result} result"),
            });
        }
        let workspace = self.workspace(context, stream)?;
        let plan = self.get_plan(driver, context, stream, shape, operands, workspace);
        let submitted = plan.and_then(|plan| {
            // SAFETY: as the caller promises.
            unsafe {
                self.submit_matmul(
                    stream,
                    shape,
                    &plan.descriptors,
                    plan.algorithm(),
                    operands,
                    workspace,
                )
            }
        });
        if let (Err(error @ DriverError::Refused { .. }), false) = (&submitted, is_plain) {
            self.note_unsupported(shape, error);
        }
        submitted
    }

    /// Frees the workspace of `stream`, whose work is done.
    pub fn free_stream(&self, context: &DeviceContext, stream: Stream) -> Result<(), DriverError> {
        match lock_unpoisoned(&self.workspaces).remove(&stream) {
            // SAFETY: allocated here, and nothing uses it any more.
            Some(workspace) => unsafe {
                memory::free_workspace(context, stream, workspace, WORKSPACE_BYTES)
            },
            None => Ok(()),
        }
    }

    /// Frees everything; all work is done.
    pub fn free_all(&self, context: &DeviceContext) {
        for (stream, workspace) in lock_unpoisoned(&self.workspaces).drain() {
            // SAFETY: as in `free_stream`. Errors cannot be handled here.
            let _ = unsafe { memory::free_workspace(context, stream, workspace, WORKSPACE_BYTES) };
        }
        lock_unpoisoned(&self.plans).clear();
        // SAFETY: not used any more.
        unsafe { (self.api.cublasLtDestroy)(self.handle) };
    }

    /// Returns the workspace of a stream, shared because matmuls on one stream run one after another.
    fn workspace(&self, context: &DeviceContext, stream: Stream) -> Result<u64, DriverError> {
        let mut workspaces = lock_unpoisoned(&self.workspaces);
        if let Some(workspace) = workspaces.get(&stream) {
            return Ok(*workspace);
        }
        let workspace = memory::alloc_workspace(context, stream, WORKSPACE_BYTES)?;
        workspaces.insert(stream, workspace);
        Ok(workspace)
    }

    unsafe fn submit_matmul(
        &self,
        stream: Stream,
        shape: &MatMul,
        descriptors: &MatMulDescriptors,
        algorithm: &cublasLtMatmulAlgo_t,
        operands: &MatMulOperands,
        workspace: u64,
    ) -> Result<(), DriverError> {
        let api = self.api;
        let (alpha, beta) = (1.0f32, if shape.gemm.accumulate { 1.0f32 } else { 0.0 });
        let _guard = descriptors.set_epilogue_pointers(operands.bias, operands.aux)?;
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
                    WORKSPACE_BYTES,
                    stream.0 as *mut _,
                )
            )
        }
    }
}

/// Returns true if cuBLASLt has matmuls of these dtypes.
fn has_dtypes(shape: &MatMul) -> bool {
    matches!(
        (shape.inputs, shape.result),
        (DType::Bf16, DType::Bf16 | DType::F32) | (DType::F32, DType::F32)
    )
}
