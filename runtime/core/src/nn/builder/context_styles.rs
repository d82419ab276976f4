//! Styles of context-parallel attentions, which are checked when all parameters are declared.

use std::any::TypeId;

use crate::layout::{AxisId, AxisSet, Whole};

use super::super::ContextStyle;
use super::Builder;
use super::declare::{BuildState, StyledAttention};
use super::field_settings::is_index;

impl Builder<'_> {
    /// Returns the style of this context-parallel attention with heads `H` and `K`, which declares `declared`.
    ///
    /// That a rank has heads for it is checked when the whole model is declared: which of them it has is known from the
    /// projections, and they may be declared after their attention.
    pub(in crate::nn) fn context_style<H: Whole, K: Whole>(
        &self,
        declared: ContextStyle,
    ) -> ContextStyle {
        let style = self.state.sizes.context.unwrap_or(declared);
        let heads = [(TypeId::of::<H>(), self.size::<H>()), (TypeId::of::<K>(), self.size::<K>())];
        let attention = StyledAttention { path: self.path.clone(), style, heads };
        self.state.styled_attentions.borrow_mut().push(attention);
        style
    }
}

impl BuildState<'_> {
    /// Records the attentions whose heads cannot be exchanged in their style, and the ranks among which the positions
    /// of the others are distributed.
    pub(super) fn check_context_styles(&self) {
        let ranks = self.rank.degree_of(AxisSet::of(AxisId::Cp));
        for StyledAttention { path, style, heads } in &*self.styled_attentions.borrow() {
            let [heads, kv_heads] =
                heads.map(|(dim, size)| size.div_ceil(self.split_degree(path, dim)));
            match style.algorithm(ranks, heads, kv_heads) {
                Ok(algorithm) => self.set_position_ranks(path, algorithm.position_ranks(ranks)),
                Err(problem) => self.problem(path, format_args!("{problem}")),
            }
        }
    }

    fn set_position_ranks(&self, path: &str, ranks: usize) {
        let paths = self.attention_paths.borrow();
        let mut attentions = self.attentions.borrow_mut();
        for (_, sizes) in paths.iter().zip(&mut *attentions).filter(|(at, _)| *at == path) {
            sizes.position_ranks = ranks;
        }
    }

    /// Returns over how many ranks the layers around the field at `path` split a dim: the layers of the innermost model
    /// around it that has layers with the dim.
    fn split_degree(&self, path: &str, dim: TypeId) -> usize {
        let params = self.params.borrow();
        let models = path.rmatch_indices('.').map(|(end, _)| &path[..=end]).chain([""]);
        let splits_in = |model: &str| {
            // `blocks.0.attn.q.weight` is of a layer of `blocks.0.attn.`, as is `blocks.0.attn.q.1.weight`.
            let is_of_layer =
                |rest: &str| rest.split('.').filter(|part| !is_index(part)).count() <= 2;
            let inside = params
                .iter()
                .filter(|param| param.path().strip_prefix(model).is_some_and(is_of_layer));
            let dims = inside.flat_map(|param| param.dims()).filter(|info| (info.key)() == dim);
            dims.map(|info| info.split).max()
        };
        let split = models.into_iter().find_map(splits_in);
        split.map_or(1, |split| self.rank.degree_of(split))
    }
}
