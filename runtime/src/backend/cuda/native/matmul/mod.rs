//! Matrix products by cuBLASLt, with a plan for each shape.

mod descriptors;
mod layout;

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex};

use cudarc::cublaslt::sys::{cublasLtHandle_t, cublasLtMatmulAlgo_t};
use cudarc::driver::sys::{CUevent_flags, CUstream, CUstreamCaptureStatus};

use super::api::{CublasLtApi, cublaslt};
use super::context::{Context, call as driver_call};
use super::memory;
use crate::backend::DType;
use crate::backend::cuda::gpu::lock;
use crate::backend::cuda::{DriverError, MatMul, Stream};
use descriptors::{Alignment, Descriptors, call};
use layout::Product;

/// Bytes that a product may use beside its operands: what the library's fastest ways need on Hopper.
const WORKSPACE: usize = 32 << 20;

/// How many ways to compute a product are compared.
const CANDIDATES: usize = 8;

/// Floating-point operations from which on it pays to compare them. A smaller product takes microseconds in any way.
const WORTH_TIMING: u64 = 100_000_000;

/// How often each way is timed, after one run that is not.
const TIMED_RUNS: u32 = 3;

/// The library on one device, and the plans that were made so far.
pub struct MatMuls {
    api: &'static CublasLtApi,
    handle: cublasLtHandle_t,
    plans: Mutex<HashMap<Key, Arc<Plan>>>,
    workspaces: Mutex<HashMap<Stream, u64>>,
    /// Compare ways to compute a product by the clock, instead of taking what the library holds for the best.
    timed: bool,
}

// SAFETY: the handle may be used from any thread, one after another or at once.
unsafe impl Send for MatMuls {}
// SAFETY: as above.
unsafe impl Sync for MatMuls {}

/// What a plan depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    shape: MatMul,
    alignment: Alignment,
}

/// How a product is computed.
struct Plan {
    descriptors: Descriptors,
    algorithm: cublasLtMatmulAlgo_t,
}

/// Where a product is computed: left, right, what is added to, and the result.
#[derive(Clone, Copy)]
struct Operands {
    left: u64,
    right: u64,
    added: u64,
    result: u64,
    accumulate: bool,
}

impl MatMuls {
    /// On the device of the current context.
    pub fn new(timed: bool) -> Result<MatMuls, DriverError> {
        let api: &'static CublasLtApi = cublaslt()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: it sets the handle.
        unsafe { call!(api, cublasLtCreate(&mut handle)) }?;
        let (plans, workspaces) = Default::default();
        Ok(MatMuls { api, handle, plans, workspaces, timed })
    }

    /// `c (+)= op(a) * op(b)` of row-major matrices, none of whose sizes is 0.
    ///
    /// # Safety
    /// As [`Driver::matmul`](crate::backend::cuda::Driver::matmul).
    pub unsafe fn run(
        &self,
        context: &Context,
        stream: Stream,
        shape: &MatMul,
        [a, b, c]: [u64; 3],
    ) -> Result<(), DriverError> {
        // See `Product`: the factors change places.
        let accumulate = shape.gemm.accumulate;
        let operands = Operands { left: b, right: a, added: c, result: c, accumulate };
        let workspace = self.workspace(context, stream)?;
        let key = Key { shape: *shape, alignment: Alignment::of([b, a, c]) };
        let known = lock(&self.plans).get(&key).cloned();
        let plan = match known {
            Some(plan) => plan,
            None => {
                // SAFETY: as the caller promises.
                let plan = unsafe { self.plan(context, stream, &key, &operands, workspace) }?;
                // Where two ranks made one at once, both use the first: the same product gives the same bits.
                Arc::clone(lock(&self.plans).entry(key).or_insert(Arc::new(plan)))
            }
        };
        // SAFETY: as the caller promises.
        unsafe { self.submit(stream, &plan.descriptors, &plan.algorithm, &operands, workspace) }
    }

    /// Gives back what `stream` has used; all of its work is done.
    pub fn forget(&self, context: &Context, stream: Stream) -> Result<(), DriverError> {
        match lock(&self.workspaces).remove(&stream) {
            // SAFETY: it was allocated here, and nothing uses it any more.
            Some(workspace) => unsafe { memory::free_scratch(context, workspace, WORKSPACE) },
            None => Ok(()),
        }
    }

    /// Gives everything back; all work is done.
    pub fn close(&self, context: &Context) {
        for (_, workspace) in lock(&self.workspaces).drain() {
            // SAFETY: as in `forget`. Nobody could act on an error.
            let _ = unsafe { memory::free_scratch(context, workspace, WORKSPACE) };
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
        let workspace = memory::alloc_scratch(context, WORKSPACE)?;
        workspaces.insert(stream, workspace);
        Ok(workspace)
    }

    /// A plan for these operands; where ways are timed, they are tried on them.
    unsafe fn plan(
        &self,
        context: &Context,
        stream: Stream,
        key: &Key,
        operands: &Operands,
        workspace: u64,
    ) -> Result<Plan, DriverError> {
        let gemm = &key.shape.gemm;
        let descriptors = Descriptors::new(self.api, &Product::of(&key.shape))?;
        let flops = 2 * gemm.m as u64 * gemm.n as u64 * gemm.k as u64;
        let timed = self.timed && flops >= WORTH_TIMING && !is_capturing(context, stream)?;
        let count = if timed { CANDIDATES } else { 1 };
        let candidates = descriptors.candidates(self.handle, WORKSPACE, &key.alignment, count)?;
        let first = *candidates.first().ok_or_else(|| DriverError::Call {
            call: "cublasLtMatmulAlgoGetHeuristic",
            reason: format!("the library knows no way to compute {key:?}"),
        })?;
        if candidates.len() == 1 {
            return Ok(Plan { descriptors, algorithm: first });
        }

        // What is added to must not be changed by trying, so that results go elsewhere.
        let bytes = gemm.m * gemm.n * key.shape.result.bytes();
        let aside = match operands.accumulate {
            true => memory::alloc(context, bytes).map(Some),
            false => Ok(None),
        };
        let Ok(aside) = aside else {
            // There is no memory to try them with.
            return Ok(Plan { descriptors, algorithm: first });
        };
        let tried = Operands { result: aside.unwrap_or(operands.result), ..*operands };
        // SAFETY: as the caller promises, and the result has room.
        let fastest =
            unsafe { self.fastest(context, stream, &descriptors, &candidates, &tried, workspace) };
        if let Some(aside) = aside {
            // SAFETY: it was allocated above, and the stream has been waited for.
            unsafe { memory::free(context, aside) }?;
        }
        Ok(Plan { descriptors, algorithm: fastest? })
    }

    /// The candidate that takes the least time.
    unsafe fn fastest(
        &self,
        context: &Context,
        stream: Stream,
        descriptors: &Descriptors,
        candidates: &[cublasLtMatmulAlgo_t],
        operands: &Operands,
        workspace: u64,
    ) -> Result<cublasLtMatmulAlgo_t, DriverError> {
        let clock = Clock::new(context, stream)?;
        let mut best = (f32::INFINITY, candidates[0]);
        for candidate in candidates {
            // SAFETY: as the caller promises.
            let run =
                || unsafe { self.submit(stream, descriptors, candidate, operands, workspace) };
            // The library may offer what it then refuses; the others remain.
            if run().is_err() {
                continue;
            }
            let milliseconds = clock.time(|| (0..TIMED_RUNS).try_for_each(|_| run()))?;
            if milliseconds < best.0 {
                best = (milliseconds, *candidate);
            }
        }
        Ok(best.1)
    }

    unsafe fn submit(
        &self,
        stream: Stream,
        descriptors: &Descriptors,
        algorithm: &cublasLtMatmulAlgo_t,
        operands: &Operands,
        workspace: u64,
    ) -> Result<(), DriverError> {
        let api = self.api;
        let (alpha, beta) = (1.0f32, if operands.accumulate { 1.0f32 } else { 0.0 });
        // SAFETY: as the caller promises; factors are read from the host during the call.
        unsafe {
            call!(
                api,
                cublasLtMatmul(
                    self.handle,
                    descriptors.operation,
                    (&raw const alpha).cast(),
                    operands.left as *const c_void,
                    descriptors.left,
                    operands.right as *const c_void,
                    descriptors.right,
                    (&raw const beta).cast(),
                    operands.added as *const c_void,
                    descriptors.result,
                    operands.result as *mut c_void,
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
    )
}

fn is_capturing(context: &Context, stream: Stream) -> Result<bool, DriverError> {
    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    let stream = stream.0 as CUstream;
    // SAFETY: it writes the status of a live stream.
    unsafe { driver_call!(context.api, cuStreamIsCapturing(stream, &mut status)) }?;
    Ok(status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
}

/// Measures time on a stream.
struct Clock<'a> {
    context: &'a Context,
    stream: CUstream,
    events: [cudarc::driver::sys::CUevent; 2],
}

impl<'a> Clock<'a> {
    fn new(context: &'a Context, stream: Stream) -> Result<Clock<'a>, DriverError> {
        let mut clock =
            Clock { context, stream: stream.0 as CUstream, events: [std::ptr::null_mut(); 2] };
        for event in &mut clock.events {
            let flags = CUevent_flags::CU_EVENT_DEFAULT as u32;
            // SAFETY: it sets the handle.
            unsafe { driver_call!(context.api, cuEventCreate(event, flags)) }?;
        }
        Ok(clock)
    }

    /// Milliseconds that what `work` submits takes.
    fn time(&self, work: impl FnOnce() -> Result<(), DriverError>) -> Result<f32, DriverError> {
        let (api, [from, to]) = (self.context.api, self.events);
        let mut milliseconds = 0.0;
        // SAFETY: events and stream are alive.
        unsafe {
            driver_call!(api, cuEventRecord(from, self.stream))?;
            work()?;
            driver_call!(api, cuEventRecord(to, self.stream))?;
            driver_call!(api, cuEventSynchronize(to))?;
            driver_call!(api, cuEventElapsedTime_v2(&mut milliseconds, from, to))?;
        }
        Ok(milliseconds)
    }
}

impl Drop for Clock<'_> {
    fn drop(&mut self) {
        for event in self.events {
            if !event.is_null() {
                // SAFETY: it was made, and is not used any more.
                unsafe { (self.context.api.cuEventDestroy_v2)(event) };
            }
        }
    }
}
