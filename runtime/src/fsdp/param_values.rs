//! Values of a parameter: reads for kernels, gathers, writes.

use std::panic::Location;

use crate::context::{Rank, gather_block};
use crate::layout::AxisSet;

use super::param::ParamRef;
use super::unit::UnitSlice;

impl ParamRef {
    /// Gathers the global parameter in f32, row-major, from the ranks that hold its parts; all of them call it.
    #[track_caller]
    pub fn gather(&self, rank: &Rank) -> Vec<f32> {
        self.gather_block(rank, self.to_local_vec())
    }

    /// Gathers the global tensor of which `block` is this rank's part, split like the parameter.
    #[track_caller]
    pub(crate) fn gather_block(&self, rank: &Rank, block: Vec<f32>) -> Vec<f32> {
        gather_block(rank, self.dims(), self.local_extents(), block)
    }

    /// Returns its elements on this rank in f32, row-major: [`gather`](Self::gather) returns the global parameter. If they
    /// are sharded over the `fsdp` axis, all of its ranks call it.
    pub fn to_local_vec(&self) -> Vec<f32> {
        let whole = self.unit.gather_shards(self.unit.master().view());
        whole.view().slice(self.range()).to_vec()
    }

    /// See [`to_local_vec`](Self::to_local_vec).
    #[deprecated(
        note = "it returns this rank's block only: use `to_local_vec`, or `gather` for the global parameter on every rank"
    )]
    pub fn to_vec(&self) -> Vec<f32> {
        self.to_local_vec()
    }

    /// Returns the elements that this rank [owns](Self::owned), in f32.
    pub fn owned_values(&self) -> UnitSlice<'_> {
        self.unit.master().part(self.owned_in_shard())
    }

    /// Writes new elements: `block` is this rank's block of the parameter, row-major, the same on every rank that holds
    /// it. [`write_global`](Self::write_global) takes the global parameter.
    ///
    /// # Panics
    /// If `block` has another number of elements.
    #[track_caller]
    pub fn write(&self, block: &[f32]) {
        let name = || format!("the block of `{}`", self.path());
        let declared = self.rank().declared_values();
        declared.note_elements(name, self.varies(), Location::caller(), block);
        assert_eq!(block.len(), self.local_len(), "a block of `{}`", self.path());
        self.write_block(block);
    }

    /// Writes new elements: `values` is the global parameter, row-major, the same on every rank. Each rank takes its
    /// block; [`gather`](Self::gather) is the inverse.
    ///
    /// # Panics
    /// If `values` has another number of elements.
    #[track_caller]
    pub fn write_global(&self, values: &[f32]) {
        assert_eq!(values.len(), self.global_len(), "the global elements of `{}`", self.path());
        let name = || format!("the elements of `{}`", self.path());
        let declared = self.rank().declared_values();
        declared.note_elements(name, AxisSet::NONE, Location::caller(), values);
        let global_index = |mut rest: usize| {
            let (mut index, mut stride) = (0, 1);
            for extent in self.local_extents().iter().rev() {
                index += (extent.offset + rest % extent.local) * stride;
                rest /= extent.local;
                stride *= extent.global;
            }
            index
        };
        let block: Vec<f32> =
            (0..self.local_len()).map(|local| values[global_index(local)]).collect();
        self.write_block(&block);
    }

    fn write_block(&self, block: &[f32]) {
        self.unit.write(self.range().start, self.unit.stage_values(block).view());
    }

    /// Returns its values on this rank, row-major, for a kernel of forward; the gradient of the operation that reads
    /// them is partial over `axes`.
    pub(crate) fn read(&self, axes: AxisSet) -> UnitSlice<'_> {
        self.note_gradient_axes(axes);
        self.unit.log_read();
        self.values()
    }

    /// Returns its values on this rank, row-major, for a kernel of backward.
    pub(crate) fn values(&self) -> UnitSlice<'_> {
        self.unit.unshard();
        self.unit.read(self.range())
    }
}
