//! Plans: the algorithm of each matmul shape, chosen once.

use std::sync::Arc;

use cudarc::cublaslt::sys::cublasLtMatmulAlgo_t;
use cudarc::driver::sys::{CUstream, CUstreamCaptureStatus};

use super::candidates::{Alignment, Candidate};
use super::descriptors::Descriptors;
use super::{MatMuls, WORKSPACE};
use crate::backend::cuda::choices::{Origin, ProductChoice};
use crate::backend::cuda::gpu::lock;
use crate::backend::cuda::native::context::{Context, call};
use crate::backend::cuda::trial::fastest;
use crate::backend::cuda::{Driver, DriverError, MatMul, MatMulOperands, Stream};

/// Maximum number of algorithms to autotune.
const CANDIDATES: usize = 24;

/// Minimum floating-point operations for autotuning: a smaller matmul takes microseconds with any algorithm.
const WORTH_TRYING: u64 = 2_000_000_000;

/// Key of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    pub shape: MatMul,
    pub alignment: Alignment,
}

/// Plan of a matmul.
pub struct Plan {
    pub descriptors: Descriptors,
    candidate: Candidate,
    pub choice: ProductChoice,
    /// True if the choice is final, without later autotuning.
    settled: bool,
}

impl Plan {
    pub fn algorithm(&self) -> &cublasLtMatmulAlgo_t {
        &self.candidate.algorithm
    }
}

impl MatMuls {
    /// Returns the plan of a matmul, which is made on first use.
    pub fn planned(
        &self,
        driver: &dyn Driver,
        context: &Context,
        stream: Stream,
        shape: &MatMul,
        operands: &MatMulOperands,
        workspace: u64,
    ) -> Result<Arc<Plan>, DriverError> {
        // The inputs change places: see `ColumnMajorMatMul`.
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
                // If two ranks made a plan concurrently, both use the first.
                let mut plans = lock(&self.plans);
                let kept = plans.entry(key).or_insert_with(|| Arc::clone(&plan));
                if !kept.settled {
                    *kept = plan;
                }
                Ok(Arc::clone(kept))
            }
        }
    }

    /// Makes the plan of a matmul shape: from the autotuning cache, or else by autotuning. During stream capture work
    /// is not executed, so autotuning is impossible and the heuristic's first proposal is used. A later call may
    /// replace it, unless the replacement may not be bitwise equal: captured and eager work then compute the same.
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
        let is_worth_trying = flops >= WORTH_TRYING;
        if is_worth_trying
            && let Some(kept) = self.kept.get(shape, key.alignment)
            && let Some(kept) = descriptors.checked(self.handle, WORKSPACE, kept)
        {
            return Ok(self.made(key, descriptors, kept, Origin::Kept, true));
        }
        if !is_worth_trying || recorded {
            let first = descriptors.candidates(self.handle, WORKSPACE, &key.alignment, 1)?[0];
            let settled = !is_worth_trying || self.any_bits;
            return Ok(self.made(key, descriptors, first, Origin::Proposed, settled));
        }
        let candidates =
            descriptors.candidates(self.handle, WORKSPACE, &key.alignment, CANDIDATES)?;
        let run = |way: usize, operands: &MatMulOperands| {
            let algorithm = &candidates[way].algorithm;
            // SAFETY: the operands have the sizes of the matmul and are used on this stream only.
            unsafe { self.submit(stream, shape, &descriptors, algorithm, operands, workspace) }
        };
        let tried = fastest(driver, stream, shape, candidates.len(), self.any_bits, run)?;
        let Some(chosen) = tried.chosen else {
            return Ok(self.made(key, descriptors, candidates[0], Origin::Proposed, true));
        };
        // Another process may have autotuned concurrently and chosen another algorithm.
        let kept = self.kept.put(shape, key.alignment, candidates[chosen].algorithm);
        let is_own = kept.data == candidates[chosen].algorithm.data;
        let kept = (!is_own).then(|| descriptors.checked(self.handle, WORKSPACE, kept)).flatten();
        let (candidate, origin) = match kept {
            Some(kept) => (kept, Origin::Kept),
            None => (candidates[chosen], Origin::Tried { way: chosen, trials: tried.trials }),
        };
        Ok(self.made(key, descriptors, candidate, origin, true))
    }

    fn made(
        &self,
        key: &Key,
        descriptors: Descriptors,
        candidate: Candidate,
        origin: Origin,
        settled: bool,
    ) -> Plan {
        let choice = ProductChoice {
            shape: key.shape,
            alignment: key.alignment.0,
            settings: candidate.settings(self.api),
            workspace: candidate.workspace,
            origin,
        };
        Plan { descriptors, candidate, choice, settled }
    }

    /// Returns the choices for all shapes so far.
    pub fn choices(&self) -> Vec<ProductChoice> {
        lock(&self.plans).values().map(|plan| plan.choice.clone()).collect()
    }
}

fn is_capturing(context: &Context, stream: Stream) -> Result<bool, DriverError> {
    let none = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE as u32;
    let mut status = none;
    let stream = stream.0 as CUstream;
    // SAFETY: writes the status of a live stream.
    unsafe { call!(context.api, cuStreamIsCapturing(stream, &mut status)) }?;
    Ok(status != none)
}
