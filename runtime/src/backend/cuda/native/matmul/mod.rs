//! Matrix products by cuBLASLt, with a plan for each shape.

mod descriptors;
mod layout;

use std::collections::HashMap;
use std::ffi::c_void;
use std::io::Write;
use std::sync::{Arc, Mutex, Once};

use cudarc::cublaslt::sys::{cublasLtHandle_t, cublasLtMatmulAlgo_t};
use cudarc::driver::sys::{CUstream, CUstreamCaptureStatus};

use super::api::{CublasLtApi, cublaslt};
use super::context::{Context, call as driver_call};
use super::memory;
use crate::backend::DType;
use crate::backend::cuda::gpu::lock;
use crate::backend::cuda::trial::fastest;
use crate::backend::cuda::{Driver, DriverError, Ending, MatMul, MatMulOperands, Stream};
use descriptors::{Alignment, Descriptors, call};

/// Bytes that a product may use beside its operands: what the library's fastest ways need on Hopper.
const WORKSPACE: usize = 32 << 20;

/// How many ways to compute a product are tried.
const CANDIDATES: usize = 8;

/// Floating-point operations from which on it pays to try them. A smaller product takes microseconds in any way.
const WORTH_TRYING: u64 = 100_000_000;

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
    /// Whether nothing is left to try: not so where work was being recorded when the plan was made.
    settled: bool,
}

impl MatMuls {
    /// On the device of the current context.
    pub fn new(any_bits: bool) -> Result<MatMuls, DriverError> {
        let api: &'static CublasLtApi = cublaslt()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: it sets the handle.
        unsafe { call!(api, cublasLtCreate(&mut handle)) }?;
        let (plans, known, workspaces) = Default::default();
        Ok(MatMuls { api, handle, plans, known, workspaces, told: Once::new(), any_bits })
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
                "{error}, for {shape:?}: what comes with a product is computed by kernels of its own where cuBLASLt has no \
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
                self.submit(stream, shape, &plan.descriptors, &plan.algorithm, operands, workspace)
            }
        });
        if let (Err(error @ DriverError::Refused { .. }), true) =
            (&submitted, shape.ending != Ending::Plain)
        {
            self.note_refusal(shape, error);
        }
        submitted
    }

    /// The plan of a product, which may have to be made.
    fn planned(
        &self,
        driver: &dyn Driver,
        context: &Context,
        stream: Stream,
        shape: &MatMul,
        operands: &MatMulOperands,
        workspace: u64,
    ) -> Result<Arc<Plan>, DriverError> {
        // See `Product`: the factors change places.
        let MatMulOperands { a, b, c, .. } = *operands;
        let key = Key { shape: *shape, alignment: Alignment::of([b, a, c]) };
        let known = lock(&self.plans).get(&key).cloned();
        let is_recorded = || is_capturing(context, stream);
        match known {
            Some(plan) if plan.settled || is_recorded()? => Ok(plan),
            _ => {
                let recorded = is_recorded()?;
                let plan = self.plan(driver, stream, &key, operands, workspace, recorded)?;
                let plan = Arc::new(plan);
                // Where two ranks made one at once, both use the first.
                let mut plans = lock(&self.plans);
                let kept = plans.entry(key).or_insert_with(|| Arc::clone(&plan));
                if !kept.settled {
                    *kept = plan;
                }
                Ok(Arc::clone(kept))
            }
        }
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

    /// A plan for products of a shape. Ways to compute it are tried unless it is recorded, since what is recorded is not
    /// done: then it is the first proposal.
    fn plan(
        &self,
        driver: &dyn Driver,
        stream: Stream,
        key: &Key,
        operands: &MatMulOperands,
        workspace: u64,
        recorded: bool,
    ) -> Result<Plan, DriverError> {
        let (shape, gemm) = (&key.shape, &key.shape.gemm);
        let descriptors = Descriptors::new(self.api, shape)?;
        descriptors.point_to(operands.vector, operands.inside)?;
        let flops = 2 * gemm.m as u64 * gemm.n as u64 * gemm.k as u64;
        let worth_trying = flops >= WORTH_TRYING;
        let tried = worth_trying && !recorded;
        let count = if tried { CANDIDATES } else { 1 };
        let candidates = descriptors.candidates(self.handle, WORKSPACE, &key.alignment, count)?;
        let first = candidates[0];
        let mut plan = Plan { descriptors, algorithm: first, settled: tried || !worth_trying };
        if candidates.len() > 1 {
            let run = |way: usize, operands: &MatMulOperands| {
                let (descriptors, algorithm) = (&plan.descriptors, &candidates[way]);
                // SAFETY: what the trial gives has the sizes of the product, and is used on this stream alone.
                unsafe { self.submit(stream, shape, descriptors, algorithm, operands, workspace) }
            };
            let chosen = fastest(driver, stream, shape, candidates.len(), self.any_bits, run)?;
            plan.algorithm = chosen.map_or(first, |way| candidates[way]);
        }
        Ok(plan)
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

fn is_capturing(context: &Context, stream: Stream) -> Result<bool, DriverError> {
    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    let stream = stream.0 as CUstream;
    // SAFETY: it writes the status of a live stream.
    unsafe { driver_call!(context.api, cuStreamIsCapturing(stream, &mut status)) }?;
    Ok(status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
}
