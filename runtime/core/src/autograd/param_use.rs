//! Recorded uses of parameters, and their contributions to the parameters' gradients.

use crate::fsdp::{DeferredParam, InBackward, ParamRef, UnitUse};
use crate::layout::AxisSet;
use meshwright_backend::{Buffer, LeafGrad, ViewMut};

use super::tape::{NodeId, TapeGradients};

/// A use of a parameter that is recorded for backward: counted while it exists, so that the unit detects when the
/// gradient is complete.
pub(crate) struct ParamUse {
    param: ParamRef,
    /// The axes over which the gradient of the use is partial.
    axes: AxisSet,
    /// Version of the values that the operation has read, if backward reads them too.
    version: Option<u64>,
    unit_use: UnitUse,
}

/// The rank that contributes the gradient of a use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contributor {
    ThisRank,
    AnotherRank,
    /// None: the parameter requires no gradient.
    None,
}

impl ParamUse {
    /// Records that `param` is read by an operation whose gradient contribution is partial over `axes`.
    pub(crate) fn new(param: &ParamRef, axes: AxisSet, in_backward: InBackward) -> ParamUse {
        ParamUse::of_version(param, axes, in_backward, param.unit().version())
    }

    /// Records the same for an operation that was deferred when the values had this version.
    pub(crate) fn of_deferred(
        deferred: &DeferredParam,
        axes: AxisSet,
        in_backward: InBackward,
    ) -> ParamUse {
        ParamUse::of_version(&deferred.param, axes, in_backward, deferred.version)
    }

    fn of_version(
        param: &ParamRef,
        axes: AxisSet,
        in_backward: InBackward,
        version: u64,
    ) -> ParamUse {
        let unit_use = param.begin_use(axes, in_backward);
        let version = (in_backward == InBackward::Reads).then_some(version);
        ParamUse { param: param.clone(), axes, version, unit_use }
    }

    /// Returns the use of the parameter's unit.
    pub(crate) fn unit_use(&self) -> &UnitUse {
        &self.unit_use
    }

    /// Returns true if the parameter is trained: else the use contributes no gradient.
    pub(crate) fn is_trained(&self) -> bool {
        !self.param.is_frozen()
    }

    /// Returns the parameter.
    pub(crate) fn param(&self) -> &ParamRef {
        &self.param
    }

    /// Calls `write` with the gradient to contribute to, and whether to accumulate into it, and counts the use as done.
    ///
    /// If the gradient is reduced over more axes than this use needs (another use needs them, or its ranks read other
    /// tokens, so that every gradient is summed over it), the contribution of this use is the same on every rank of
    /// those axes, and only the first rank of them contributes it.
    pub(crate) fn finish_use(
        &self,
        gradients: &TapeGradients<'_>,
        write: impl FnOnce(ViewMut<'_>, bool),
    ) {
        let contributor = self.begin_contribution(gradients);
        if contributor == Contributor::ThisRank {
            self.param.with_gradient(write);
        }
        self.end_contribution(gradients, contributor);
    }

    /// Does the same as [`finish_use`](Self::finish_use) for several parameters of one unit, whose contributions one
    /// kernel computes: `write` is called even if no gradient is required, with the required gradients.
    pub(crate) fn finish_together<const N: usize>(
        uses: [&ParamUse; N],
        gradients: &TapeGradients<'_>,
        write: impl FnOnce([Option<LeafGrad<'_>>; N]),
    ) {
        let contributors = uses.map(|param_use| param_use.begin_contribution(gradients));
        let requested = contributors.map(|contributor| contributor == Contributor::ThisRank);
        ParamRef::with_gradients(uses.map(ParamUse::param), requested, write);
        for (param_use, contributor) in uses.into_iter().zip(contributors) {
            param_use.end_contribution(gradients, contributor);
        }
    }

    /// Contributes `gradient`, in f32, and counts the use as done.
    pub(crate) fn finish_with(&self, gradients: &TapeGradients<'_>, gradient: &Buffer) {
        self.finish_use(gradients, |view, accumulate| {
            let backend = gradients.rank.backend();
            if accumulate {
                backend.add_assign(view, gradient.view());
            } else {
                backend.cast(gradient.view(), view);
            }
        });
    }

    fn begin_contribution(&self, gradients: &TapeGradients<'_>) -> Contributor {
        let (rank, unit) = (gradients.rank, self.param.unit());
        if let Some(version) = self.version {
            unit.check_version(version);
        }
        if rank.running_backward().is_none_or(|backward| !backward.acquire(unit)) {
            return Contributor::None;
        }
        unit.note_contribution();
        let reduced_over = self.param.widen_gradient_axes(rank);
        if rank.position(reduced_over.difference(self.axes)) == 0 {
            Contributor::ThisRank
        } else {
            Contributor::AnotherRank
        }
    }

    fn end_contribution(&self, gradients: &TapeGradients<'_>, contributor: Contributor) {
        match (contributor, gradients.rank.running_backward()) {
            (Contributor::ThisRank | Contributor::AnotherRank, Some(backward)) => {
                self.unit_use.finish_use(self.param.unit(), &backward);
            }
            _ => self.unit_use.discard(),
        }
    }
}

impl TapeGradients<'_> {
    /// Calls `kernel` with the gradient of the result of `node`, of `len` elements, and the gradients of the parameters
    /// that were used with it, and counts the uses as done. Each gradient comes with whether to accumulate into it.
    ///
    /// The result may have a gradient from another reader, as the stream of a residual network has from the sum after a
    /// block when backward reaches the norm before it. A kernel that accumulates into it saves a pass over both.
    pub(crate) fn accumulate_with<const N: usize>(
        &mut self,
        node: Option<&NodeId>,
        len: usize,
        uses: [&ParamUse; N],
        kernel: impl FnOnce(LeafGrad<'_>, [Option<LeafGrad<'_>>; N]),
    ) {
        let (mut sum, accumulate) = match node {
            Some(node) => self.take_gradient(node, len),
            None => (self.rank.alloc_activation(len), false),
        };
        ParamUse::finish_together(uses, self, |param_gradients| {
            kernel(LeafGrad { view: sum.view_mut(), accumulate }, param_gradients);
        });
        if let Some(node) = node {
            self.put_gradient(node, sum);
        }
    }
}
