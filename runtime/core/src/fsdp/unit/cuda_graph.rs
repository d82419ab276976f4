//! Buffers of a unit at the capture and the replay of a CUDA graph.

use std::sync::Arc;

use crate::context::ZeroStage;
use meshwright_backend::{Buffer, GraphBuffer, GraphPool};

use super::Unit;
use super::values::WholeValues;

/// Addresses of a unit's buffers when the capture of a CUDA graph began.
#[derive(Debug)]
pub(crate) struct CapturedBuffers {
    /// Buffers that keep their addresses.
    fixed: [Option<usize>; 4],
    /// Prefetched values at ZeRO stage 3, which the captured work has consumed.
    prefetched: Option<GraphBuffer>,
}

impl Unit {
    /// Returns the addresses of the buffers. No collective of the unit may be in progress.
    pub(crate) fn captured_buffers(&self, recordings: &Arc<GraphPool>) -> CapturedBuffers {
        let prefetched = match (self.stage(), &*self.values.whole.borrow()) {
            (ZeroStage::Parameters, WholeValues::Here(values)) => {
                Some(recordings.buffer(values.view()))
            }
            _ => None,
        };
        CapturedBuffers { fixed: self.fixed_addresses(), prefetched }
    }

    /// Prepares the unit for the replay of a graph that was captured with these buffers: copies prefetched values to
    /// the captured address. Returns false if buffers have moved.
    pub(crate) fn prepare_for_replay(&self, captured: &CapturedBuffers) -> bool {
        if self.fixed_addresses() != captured.fixed {
            return false;
        }
        // The graph computes new gradients, of this rank's stages alone.
        self.gradient.is_tie_summed.set(false);
        if self.stage() != ZeroStage::Parameters {
            return true;
        }
        if let Some(place) = &captured.prefetched {
            // An evaluation since the last step has freed them.
            self.start_unshard();
            place.copy_from(self.read(0..self.len()).view());
        }
        self.reshard()
    }

    /// Returns the addresses of the buffers that are the same in every step.
    fn fixed_addresses(&self) -> [Option<usize>; 4] {
        let address = |buffer: &Buffer| buffer.view().address() as usize;
        let whole = match (self.stage(), &*self.values.whole.borrow()) {
            (ZeroStage::Parameters, _) => None,
            (_, WholeValues::Here(values)) => Some(address(values)),
            (_, WholeValues::Absent | WholeValues::Arriving(_)) => None,
        };
        let own = self.values.own.borrow().as_deref().map(address);
        let gradient = self.gradient.whole.borrow().as_ref().map(address);
        let kept = self.gradient.kept.borrow().as_ref().map(address);
        [whole, own, gradient, kept]
    }
}
