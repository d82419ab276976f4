//! Pipeline parallelism: owning stages of a parameter.

use crate::layout::{AxisId, AxisSet};

use super::param::ParamRef;

const PP: AxisSet = AxisSet::of(AxisId::Pp);

impl ParamRef {
    /// Returns true if this rank owns the parameter: it has the values, the gradient and the optimizer state. That is
    /// every rank, unless the model is built as pipeline stages.
    pub fn is_owned(&self) -> bool {
        self.unit.is_owned()
    }

    /// Returns true if this rank is at the position along `pp` that counts, saves and exports the parameter: that of
    /// its first owning stage.
    pub fn is_first_owner(&self) -> bool {
        self.unit.rank().position(PP) == self.unit.first_owner()
    }

    /// Checks that this rank owns the parameter, and that it has values.
    ///
    /// # Panics
    /// If only other pipeline stages own it, or its model was only declared.
    #[track_caller]
    pub(crate) fn check_owned(&self) {
        if let Some(owners) = self.unit.owners().filter(|_| !self.is_owned()) {
            panic!(
                "`{}` is owned by pipeline {owners}: the rank at pp = {} has neither its values nor its gradient; use \
                 it in the forward pass of its stage, put `#[tied(..)]` on a field of its own in each other stage that \
                 uses it, and elsewhere ask `ParamRef::is_owned`",
                self.path(),
                self.unit.rank().position(PP)
            );
        }
        assert!(
            self.unit.is_allocated(),
            "`{}` has no values: the handle was kept while its model was declared, as by `plan_stages`, or while it \
             was being built; take handles from what `build` or `build_stages` has returned: `built.params()`, or the \
             fields of `built.model`",
            self.path()
        );
    }

    /// Returns the axes along which its values written from the host differ: with pipeline stages, ranks along `pp`
    /// write different parameters.
    pub(super) fn written_axes(&self) -> AxisSet {
        let along_stages = if self.unit.owners().is_some() { PP } else { AxisSet::NONE };
        self.varies().union(along_stages)
    }
}
