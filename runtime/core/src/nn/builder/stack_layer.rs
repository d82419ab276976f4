//! Layers of stacks: their index, the parameters that they share, and their kinds.

use std::any::TypeId;
use std::rc::Rc;

use super::Builder;
use super::declare::BuildState;
use super::field_settings::{setting_of, without_indices};

/// A layer of a stack.
#[derive(Clone)]
pub(super) struct StackLayer {
    index: usize,
    /// The number of layers of the stack.
    count: usize,
    /// The path of the layer.
    path: Rc<str>,
}

impl<'a> Builder<'a> {
    /// Returns the builder of element `index` of a stack of `count` layers `M`, which is its own FSDP unit.
    pub(crate) fn element<M: 'static>(&mut self, index: usize, count: usize) -> Builder<'a> {
        let mut child = self.child(&index.to_string());
        child.elements.push(TypeId::of::<M>());
        child.layer = Some(StackLayer { index, count, path: Rc::from(child.path.as_str()) });
        child.unit();
        child
    }

    /// Returns the index of the layer in the innermost stack around this field, from 0, if there is one;
    /// [`LayerIndex`](crate::nn::LayerIndex) is a field with it.
    pub fn layer_index(&self) -> Option<usize> {
        self.layer.as_ref().map(|layer| layer.index)
    }

    /// Returns true if this field is inside a stack.
    pub(in crate::nn) fn is_in_stack(&self) -> bool {
        self.layer.is_some()
    }

    /// Shares the parameters of this field among the layers of the innermost stack around it: those of the first layer
    /// that has the field are a [unit](Self::unit), to which all other layers are tied. Called for `#[shared]`.
    pub fn share(&mut self) -> &mut Self {
        let Some(layer) = &self.layer else {
            self.problem(format_args!(
                "is `#[shared]`, but is not inside a `Stack`, whose layers share it: remove the attribute; two fields \
                 of one model share a weight by `#[tied(..)]`"
            ));
            return self;
        };
        let stack = layer.path.rsplit_once('.').map_or("", |(stack, _)| stack);
        let inner = &self.path[layer.path.len()..];
        let key = (stack.to_owned(), inner.to_owned());
        let mut shared = self.state.shared.borrow_mut();
        let first = shared.entry(key).or_insert_with(|| self.path.clone()).clone();
        drop(shared);
        if first == self.path {
            return self.unit();
        }
        self.tie = Some((self.path.clone(), first));
        self
    }

    /// Returns which of the `variants` of an enum `name` this layer is, as
    /// [`Sizes::with_kinds`](crate::nn::Sizes::with_kinds) says. A missing or wrong setting is recorded as a problem.
    /// Called for `#[model]` on an enum.
    #[doc(hidden)]
    pub fn kind(&self, name: &str, variants: &[&str]) -> usize {
        let expected = || format!("`{}`", variants.join("`, `"));
        let Some(layer) = &self.layer else {
            self.problem(format_args!(
                "is a `{name}`, whose variants are kinds of layers, but is not inside a `Stack`: make it a field of \
                 the type of one of them"
            ));
            return 0;
        };
        let path = without_indices(&self.path);
        let Some((field, kinds)) = setting_of(self.sizes().kinds(), &path) else {
            let field = self.field_name();
            self.problem(format_args!(
                "its layers are of several kinds: say which by `Sizes::with_kinds(\"{field}\", [..])`, of {}",
                expected()
            ));
            return 0;
        };
        self.state.used_settings.borrow_mut().kinds.insert(field.to_owned());
        let repeats = self.sizes().is_truncated() || layer.count.is_multiple_of(kinds.len());
        if kinds.is_empty() || !repeats {
            self.problem(format_args!(
                "`Sizes::with_kinds(\"{field}\", ..)` has {} kinds, which do not repeat evenly over {} layers: give \
                 one for each layer, or a pattern that is repeated",
                kinds.len(),
                layer.count
            ));
            return 0;
        }
        let kind = &kinds[layer.index % kinds.len()];
        variants.iter().position(|variant| variant == kind).unwrap_or_else(|| {
            self.problem(format_args!(
                "`Sizes::with_kinds(\"{field}\", ..)` names `{kind}`, which is no variant of `{name}`: expected {}",
                expected()
            ));
            0
        })
    }
}

impl BuildState<'_> {
    /// Returns the problems of kinds of layers that the model does not have.
    pub(super) fn unused_kinds(&self) -> Vec<String> {
        let used = self.used_settings.borrow();
        let is_unused =
            |name: &&String| !used.kinds.contains(*name) && !used.is_inside_unbuilt(name);
        let problem = |name: &String| {
            format!(
                "`Sizes::with_kinds(\"{name}\", ..)` applies to nothing: the model has no `Stack` of an enum in a \
                 field of this name"
            )
        };
        self.sizes.kinds().keys().filter(is_unused).map(problem).collect()
    }
}
