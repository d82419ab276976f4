//! Estimates of a candidate: a step time and the memory of its fullest rank, composed of a cell, a schedule and the
//! collectives over the axes that share tokens.

use crate::layout::AxisId;
use crate::tensor::ZeroStage;
use crate::train::Result;
use crate::train::config::Precision;
use crate::train::plan::MemoryPlan;
use meshwright_sim::SoftwareFactors;

use super::bubbles::{Bubbles, ScheduleFigures};
use super::candidate::Candidate;
use super::cell::Cell;
use super::communication::{Collectives, DataTimes};
use super::space::{Frame, SearchedModel};

/// An estimate, to select the candidates whose dry run is worth its time. Nothing printed rests on it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// Seconds of a step.
    pub seconds: f64,
    /// Bytes of the fullest rank.
    pub bytes: f64,
}

/// The model and the cluster of all estimates.
pub struct Estimator<'a> {
    pub model: &'a SearchedModel,
    /// Seconds above which a candidate is too slow.
    pub limit: f64,
    pub collectives: Collectives<'a>,
    pub bubbles: Bubbles,
}

impl Estimator<'_> {
    /// Estimates a candidate of a frame; `None` if its computation alone takes longer than the limit.
    ///
    /// # Errors
    /// A cluster that is too small for the mesh.
    pub fn estimate(
        &mut self,
        frame: &Frame,
        candidate: &Candidate,
        cell: &Cell,
    ) -> Result<Option<Estimate>> {
        if self.least_seconds(candidate, cell) > self.limit {
            return Ok(None);
        }
        let (layers, pp) = (self.model.outline.layers as f64, candidate.pp() as f64);
        let micro_batches = candidate.micro_batches as f64;
        let (own_layers, pass) = self.pass(candidate, cell);
        let figures = match candidate.schedule {
            None => Some(ScheduleFigures { slowdown: 1.0, live: 1.0 }),
            Some((kind, stages)) => {
                self.bubbles.of(kind, candidate.pp(), stages, candidate.micro_batches)
            }
        };
        let Some(figures) = figures else { return Ok(None) };
        let stages = candidate.schedule.map_or(1, |(_, stages)| stages) as f64;
        let own_ends = if pp > 1.0 { cell.end_elements / 2.0 } else { cell.end_elements };
        let elements = own_layers * cell.layer_elements + own_ends;
        let units = own_layers + 1.0;
        let Candidate { mesh, zero, .. } = candidate;
        let data = self.collectives.of_parameters(mesh, *zero, elements, units)?;
        let computed = micro_batches * pass * figures.slowdown;
        let seconds = computed + exposed(*zero, micro_batches, pass, units, data);
        let split = [AxisId::Tp, AxisId::Pp, AxisId::Ep].map(|axis| mesh.degree(axis) as f64);
        let elements_of_all = elements * split.into_iter().product::<f64>();
        let count = self.model.parameters.with_all(elements_of_all);
        let state = MemoryPlan::of_parameters(&frame.config, &self.model.outline, count);
        let gathered = match zero {
            // The gradients in f32 of two layers: that of a backward, and that of a reduction.
            ZeroStage::Replicated | ZeroStage::Optimizer
                if frame.config.grad_dtype == Precision::Bf16 =>
            {
                8.0 * cell.layer_elements
            }
            ZeroStage::Replicated | ZeroStage::Optimizer => 0.0,
            ZeroStage::Gradients => 8.0 * cell.layer_elements,
            ZeroStage::Parameters => 12.0 * cell.layer_elements,
        };
        // The first ranks keep most chunks, and the last one computes the head. Of uneven stages, the first ones may be
        // the smaller ones.
        let first_layers = if stages > 1.0 { layers / pp } else { (layers / pp).floor() };
        let first = figures.live * cell.kept * first_layers / stages + cell.kept;
        let last = cell.kept * own_layers / stages + cell.transient;
        let bytes = state.total() as f64 + first.max(last) + gathered;
        Ok(Some(Estimate { seconds, bytes }))
    }

    /// Returns a lower bound of the seconds of a step: the computation of the fullest rank, or the way of one
    /// micro-batch through all ranks, without its weight gradients.
    pub fn least_seconds(&self, candidate: &Candidate, cell: &Cell) -> f64 {
        let way = 2.0 / 3.0 * candidate.pp() as f64;
        self.pass(candidate, cell).1 * way.max(candidate.micro_batches as f64)
    }

    /// Returns the layers of the fullest rank, which are whole, and the seconds of a micro-batch on it.
    fn pass(&self, candidate: &Candidate, cell: &Cell) -> (f64, f64) {
        let layers = self.model.outline.layers as f64;
        let pp = candidate.pp() as f64;
        let own_layers = (layers / pp).ceil();
        let pass = (layers * cell.layer + cell.ends) / pp;
        let pass = pass.max(own_layers * cell.layer);
        (own_layers, if pp > 1.0 { pass.max(cell.ends) } else { pass })
    }
}

/// Returns the seconds that collectives of gradients and parameters add: what computation does not overlap, and what
/// it loses beside them.
fn exposed(zero: ZeroStage, micro_batches: f64, pass: f64, units: f64, data: DataTimes) -> f64 {
    let DataTimes { reduction, replicas, gather } = data;
    let interference = SoftwareFactors::default().interference;
    let beside = |communication: f64, computation: f64| {
        let overlapped = communication.min(computation);
        communication - overlapped + interference * overlapped
    };
    let backward = 2.0 / 3.0 * pass;
    // At ZeRO stages 2 and 3, gradients are reduce-scattered in each micro-batch, and summed over replicas in the last.
    let last = (reduction + replicas) / units;
    let others = micro_batches - 1.0;
    match zero {
        ZeroStage::Replicated => beside(replicas, backward) + last,
        ZeroStage::Optimizer => beside(reduction + replicas, backward) + last + gather,
        ZeroStage::Gradients => {
            let each = beside(reduction, backward) + reduction / units;
            others * each + beside(reduction + replicas, backward) + last + gather
        }
        ZeroStage::Parameters => {
            let forward = beside(gather, pass / 3.0);
            let each = forward + beside(gather + reduction, backward) + reduction / units;
            others * each + forward + beside(gather + reduction + replicas, backward) + last
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exposed_communication_follows_the_zero_stage() {
        let of = |zero, pass, data| exposed(zero, 4.0, pass, 2.0, data);
        let sharded = DataTimes { reduction: 2.0, replicas: 0.0, gather: 1.0 };
        // Nothing to overlap with.
        assert_eq!(of(ZeroStage::Optimizer, 0.0, sharded), 4.0);
        assert_eq!(of(ZeroStage::Gradients, 0.0, sharded), 13.0);
        assert_eq!(of(ZeroStage::Parameters, 0.0, sharded), 20.0);
        // All of it overlaps, but for the last unit and the new parameters.
        let beside = 0.43 * 2.0 + 1.0;
        assert!((of(ZeroStage::Optimizer, 30.0, sharded) - beside - 1.0).abs() < 1e-9);
        let replicated = DataTimes { reduction: 0.0, replicas: 2.0, gather: 0.0 };
        assert_eq!(of(ZeroStage::Replicated, 0.0, replicated), 3.0);
        assert!((of(ZeroStage::Replicated, 30.0, replicated) - beside).abs() < 1e-9);
        // Replicas are summed once in a step, whatever the stage.
        let hybrid = DataTimes { replicas: 2.0, ..sharded };
        for zero in [ZeroStage::Optimizer, ZeroStage::Gradients, ZeroStage::Parameters] {
            assert_eq!(of(zero, 0.0, hybrid) - of(zero, 0.0, sharded), 3.0);
        }
    }
}
