//! Debug text of fields that are no layers with parameters of their own.

use std::fmt::{Debug, Formatter, Result};

use crate::layout::Dims;
use crate::tensor::Param;

use super::debug::write_layer;
use super::recompute::Recomputed;
use super::{NoForm, NotRecomputed, Stack, Unpaired};

impl<S: Dims> Debug for Param<S> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write_layer(f, "Param", &[self.handle()])
    }
}

/// Lists the layers.
impl<M: Debug, N> Debug for Stack<M, N> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_list().entries(self.layers()).finish()
    }
}

impl<M: Debug> Debug for Recomputed<M> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        (**self).fmt(f)
    }
}

// Types of fields that never exist, so that a model with such a field has one error.
impl<L, Way> Debug for NotRecomputed<L, Way> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str("NotRecomputed")
    }
}

impl<L, Style> Debug for NoForm<L, Style> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str("NoForm")
    }
}

impl<L, I, O, D> Debug for Unpaired<L, I, O, D> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str("Unpaired")
    }
}
