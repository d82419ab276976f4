//! Gradient of a parameter: its uses, the axes over which it is partial, and contributions to it.

use std::rc::Rc;

use crate::context::Rank;
use crate::layout::AxisSet;
use meshwright_backend::{LeafGrad, ViewMut};

use super::param::ParamRef;
use super::recorded_uses::UnitUse;
use super::unit::UnitSlice;

/// Access of a backward function to a parameter's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InBackward {
    Reads,
    Ignores,
}

impl ParamRef {
    /// Returns the axes over which the gradient is reduced, which are known after the first use of the parameter.
    pub fn gradient_axes(&self) -> AxisSet {
        self.entry.gradient_axes.get()
    }

    pub(super) fn note_gradient_axes(&self, axes: AxisSet) {
        self.entry.gradient_axes.set(self.gradient_axes().union(axes));
    }

    /// Counts a use that is recorded for backward, and whose gradient is partial over `axes`.
    pub(crate) fn begin_use(&self, axes: AxisSet, in_backward: InBackward) -> UnitUse {
        self.note_gradient_axes(axes);
        if in_backward == InBackward::Reads {
            self.unit.note_backward_read();
        }
        self.unit.begin_use()
    }

    /// Returns this rank's block of the reduced gradient in f32, row-major; zeros without contributions. If it is
    /// sharded over ranks, all of them call it.
    #[track_caller]
    pub(crate) fn gradient(&self) -> Vec<f32> {
        self.check_owned();
        let whole = self.unit.gather_shards(self.unit.reduced_gradient().view());
        whole.view().slice(self.range()).to_vec()
    }

    /// Returns the reduced gradient of the elements that this rank [owns](Self::owned).
    #[track_caller]
    pub(crate) fn owned_gradient(&self) -> UnitSlice<'_> {
        self.check_owned();
        self.unit.reduced_gradient().part(self.owned_in_shard())
    }

    /// Makes the gradient in the unit's buffer partial over all axes that uses so far need, and returns them.
    ///
    /// Earlier contributions may be the same on all ranks of an axis that only a later use varies over. Then they are
    /// kept on the first rank of the axis, and cleared on others.
    #[doc(hidden)]
    pub fn widen_gradient_axes(&self, rank: &Rank) -> AxisSet {
        let summed = self.unit.sum_axes();
        let axes = self.gradient_axes().union(summed);
        let before = self.entry.reduce_axes.replace(axes);
        let added = axes.difference(before).difference(summed);
        if self.entry.has_gradient.get() && rank.position(added) != 0 {
            self.unit.gradient_mut().view_mut().slice(self.range()).clear();
        }
        axes
    }

    /// Calls `write` with the gradient in the unit's buffer, and whether to accumulate into it.
    #[doc(hidden)]
    pub fn with_gradient(&self, write: impl FnOnce(ViewMut<'_>, bool)) {
        let mut gradient = self.unit.gradient_mut();
        let part = gradient.view_mut().into_slice(self.range());
        write(part, self.entry.has_gradient.replace(true));
    }

    /// Calls `write` with the gradients of the selected parameters of one unit.
    pub(crate) fn with_gradients<const N: usize>(
        params: [&ParamRef; N],
        requested: [bool; N],
        write: impl FnOnce([Option<LeafGrad<'_>>; N]),
    ) {
        if !requested.contains(&true) {
            return write([const { None }; N]);
        }
        let unit = params[0].unit();
        assert!(
            params.iter().all(|param| Rc::ptr_eq(param.unit(), unit)),
            "parameters of one unit"
        );
        let mut gradient = unit.gradient_mut();
        let mut views = gradient.view_mut().into_disjoint(params.map(ParamRef::range)).into_iter();
        write(std::array::from_fn(|i| {
            let view = views.next().filter(|_| requested[i])?;
            Some(LeafGrad { view, accumulate: params[i].entry.has_gradient.replace(true) })
        }));
    }
}
