//! Plans: the algorithm of each matmul shape, chosen once.

use std::sync::Arc;

use cudarc::cublaslt::sys::cublasLtMatmulAlgo_t;
use cudarc::driver::sys::{CUstream, CUstreamCaptureStatus};

use super::candidates::{AlgorithmCandidate, OperandAlignment};
use super::descriptors::MatMulDescriptors;
use super::{CublasLtMatMuls, WORKSPACE_BYTES};
use crate::algorithm_choices::{ChoiceOrigin, MatMulChoice};
use crate::autotune::autotune_matmul;
use crate::gpu::lock_unpoisoned;
use crate::native::context::{DeviceContext, call};
use crate::{Driver, DriverError, MatMul, MatMulOperands, Stream};

/// Maximum number of algorithms to autotune.
const MAX_CANDIDATES: usize = 24;

/// Minimum floating-point operations for autotuning: a smaller matmul takes microseconds with any algorithm.
const MIN_AUTOTUNE_FLOPS: u64 = 2_000_000_000;

/// Key of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PlanKey {
    pub shape: MatMul,
    pub alignment: OperandAlignment,
}

/// Plan of a matmul.
pub struct MatMulPlan {
    pub descriptors: MatMulDescriptors,
    candidate: AlgorithmCandidate,
    pub choice: MatMulChoice,
    /// True if the choice is final, without later autotuning.
    is_final: bool,
}

impl MatMulPlan {
    pub fn algorithm(&self) -> &cublasLtMatmulAlgo_t {
        &self.candidate.algorithm
    }
}

impl CublasLtMatMuls {
    /// Returns the plan of a matmul, which is made on first use.
    pub fn get_plan(
        &self,
        driver: &dyn Driver,
        context: &DeviceContext,
        stream: Stream,
        shape: &MatMul,
        operands: &MatMulOperands,
        workspace: u64,
    ) -> Result<Arc<MatMulPlan>, DriverError> {
        // The inputs change places: see `ColumnMajorMatMul`.
        let MatMulOperands { a, b, c, .. } = *operands;
        let key = PlanKey { shape: *shape, alignment: OperandAlignment::of_addresses([b, a, c]) };
        if shape.is_grouped {
            let descriptors = self.create_descriptors(shape, operands)?;
            return Ok(Arc::new(self.plan_by_heuristic(&key, descriptors, true)?));
        }
        let known = lock_unpoisoned(&self.plans).get(&key).cloned();
        let is_captured = || is_capturing(context, stream);
        match known {
            Some(plan) if plan.is_final || is_captured()? => Ok(plan),
            _ => {
                let captured = is_captured()?;
                let plan = self.create_plan(driver, stream, &key, operands, workspace, captured)?;
                let plan = Arc::new(plan);
                // If two ranks made a plan concurrently, both use the first.
                let mut plans = lock_unpoisoned(&self.plans);
                let current = plans.entry(key).or_insert_with(|| Arc::clone(&plan));
                if !current.is_final {
                    *current = plan;
                }
                Ok(Arc::clone(current))
            }
        }
    }

    /// Makes the plan of a matmul shape: from the autotuning cache, or else by autotuning. During stream capture work
    /// is not executed, so autotuning is impossible and the heuristic's first proposal is used. A later call may
    /// replace it, unless the replacement may not be bitwise equal: captured and eager work then compute the same.
    fn create_plan(
        &self,
        driver: &dyn Driver,
        stream: Stream,
        key: &PlanKey,
        operands: &MatMulOperands,
        workspace: u64,
        captured: bool,
    ) -> Result<MatMulPlan, DriverError> {
        let (shape, gemm) = (&key.shape, &key.shape.gemm);
        let descriptors = self.create_descriptors(shape, operands)?;
        let flops = 2 * gemm.m as u64 * gemm.n as u64 * gemm.k as u64;
        // The synthetic operands of autotuning are those of one matmul.
        let should_autotune = shape.batch.is_none() && flops >= MIN_AUTOTUNE_FLOPS;
        if should_autotune
            && let Some(cached) = self.autotune_cache.get(shape, key.alignment)
            && let Some(cached) =
                descriptors.validate_algorithm(self.handle, WORKSPACE_BYTES, cached)
        {
            return Ok(self.make_plan(key, descriptors, cached, ChoiceOrigin::Cached, true));
        }
        if !should_autotune || captured {
            let is_final = !should_autotune || self.allow_nondeterministic;
            return self.plan_by_heuristic(key, descriptors, is_final);
        }
        let candidates =
            descriptors.candidates(self.handle, WORKSPACE_BYTES, &key.alignment, MAX_CANDIDATES)?;
        let run = |index: usize, operands: &MatMulOperands| {
            let algorithm = &candidates[index].algorithm;
            // SAFETY: the operands have the sizes of the matmul and are used on this stream only.
            unsafe {
                self.submit_matmul(stream, shape, &descriptors, algorithm, operands, workspace)
            }
        };
        let result = autotune_matmul(
            driver,
            stream,
            shape,
            candidates.len(),
            self.allow_nondeterministic,
            run,
        )?;
        let Some(chosen) = result.chosen else {
            return Ok(self.make_plan(
                key,
                descriptors,
                candidates[0],
                ChoiceOrigin::Heuristic,
                true,
            ));
        };
        // Another process may have autotuned concurrently and chosen another algorithm.
        let cached =
            self.autotune_cache.put_algorithm(shape, key.alignment, candidates[chosen].algorithm);
        let is_own = cached.data == candidates[chosen].algorithm.data;
        let cached = (!is_own)
            .then(|| descriptors.validate_algorithm(self.handle, WORKSPACE_BYTES, cached))
            .flatten();
        let (candidate, origin) = match cached {
            Some(cached) => (cached, ChoiceOrigin::Cached),
            None => (
                candidates[chosen],
                ChoiceOrigin::Autotuned { algorithm: chosen, timings: result.timings },
            ),
        };
        Ok(self.make_plan(key, descriptors, candidate, origin, true))
    }

    fn create_descriptors(
        &self,
        shape: &MatMul,
        operands: &MatMulOperands,
    ) -> Result<MatMulDescriptors, DriverError> {
        let descriptors = MatMulDescriptors::new(self.api, shape)?;
        descriptors.set_epilogue_pointers(operands.bias, operands.aux)?;
        Ok(descriptors)
    }

    /// Makes a plan with the heuristic's first proposal.
    fn plan_by_heuristic(
        &self,
        key: &PlanKey,
        descriptors: MatMulDescriptors,
        is_final: bool,
    ) -> Result<MatMulPlan, DriverError> {
        let first = descriptors.candidates(self.handle, WORKSPACE_BYTES, &key.alignment, 1)?[0];
        Ok(self.make_plan(key, descriptors, first, ChoiceOrigin::Heuristic, is_final))
    }

    fn make_plan(
        &self,
        key: &PlanKey,
        descriptors: MatMulDescriptors,
        candidate: AlgorithmCandidate,
        origin: ChoiceOrigin,
        is_final: bool,
    ) -> MatMulPlan {
        let choice = MatMulChoice {
            shape: key.shape,
            alignment: key.alignment.0,
            configuration: candidate.configuration(self.api),
            workspace: candidate.workspace,
            origin,
        };
        MatMulPlan { descriptors, candidate, choice, is_final }
    }

    /// Returns the choices for all shapes so far.
    pub fn choices(&self) -> Vec<MatMulChoice> {
        lock_unpoisoned(&self.plans).values().map(|plan| plan.choice.clone()).collect()
    }
}

/// Returns true if work on the stream is captured.
fn is_capturing(context: &DeviceContext, stream: Stream) -> Result<bool, DriverError> {
    let none = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE as u32;
    let mut status = none;
    let stream = stream.0 as CUstream;
    // SAFETY: writes the status of a live stream.
    unsafe { call!(context.api, cuStreamIsCapturing(stream, &mut status)) }?;
    Ok(status != none)
}
