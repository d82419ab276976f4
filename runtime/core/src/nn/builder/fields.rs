//! Optional and repeated fields: which of them the model has, and how many elements.

use std::any::TypeId;
use std::collections::BTreeSet;

use super::Builder;
use super::declare::BuildState;
use super::field_settings::{is_index, setting_of, without_indices};

impl<'a> Builder<'a> {
    /// Returns true if the model has this optional field. A missing setting is recorded as a problem.
    pub(in crate::nn) fn is_present(&self) -> bool {
        let path = self.path_without_indices();
        let setting = setting_of(self.sizes().optional(), &path);
        let mut used = self.state.used_settings.borrow_mut();
        let is_present = match setting {
            Some((name, &is_present)) => {
                used.optional.insert(name.to_owned());
                is_present
            }
            None => {
                let field = self.field_name();
                self.problem(format_args!(
                    "is optional: say whether the model has it by `Sizes::with_optional(\"{field}\", ..)`"
                ));
                false
            }
        };
        drop(used);
        self.note_elements(usize::from(is_present));
        is_present
    }

    /// Returns true if the layer in this field has its optional parameter `name`. It is set by a name that begins with
    /// a field, as `head.bias`; by default there is none.
    pub(in crate::nn) fn has_inner(&self, name: &str) -> bool {
        self.inner(name).unwrap_or(false)
    }

    /// Returns the setting of the optional parameter `name` of the layer in this field, as
    /// [`has_inner`](Self::has_inner).
    pub(in crate::nn) fn inner(&self, name: &str) -> Option<bool> {
        let path = format!("{}.{name}", self.path_without_indices());
        let (setting, is_present) = setting_of(self.sizes().optional(), &path)?;
        setting.contains('.').then(|| {
            self.state.used_settings.borrow_mut().optional.insert(setting.to_owned());
            *is_present
        })
    }

    /// Returns the number of elements of this repeated field. A missing setting is recorded as a problem.
    pub(in crate::nn) fn count(&self) -> usize {
        /// More than any model has, and few enough to build.
        const MOST: usize = 1 << 20;
        let path = self.path_without_indices();
        let setting = setting_of(self.sizes().counts(), &path);
        let mut used = self.state.used_settings.borrow_mut();
        let count = match setting {
            Some((name, &count)) => {
                used.counts.insert(name.to_owned());
                if count <= MOST {
                    count
                } else {
                    self.problem(format_args!(
                        "has {count} elements, but a field has at most {MOST}"
                    ));
                    0
                }
            }
            None => {
                let field = self.field_name();
                self.problem(format_args!(
                    "is repeated: set its number of elements by `Sizes::with_count(\"{field}\", ..)`"
                ));
                0
            }
        };
        drop(used);
        self.note_elements(count);
        count
    }

    /// Notes that this field has `count` elements: without any, the fields inside it are unknown.
    pub(in crate::nn) fn note_elements(&self, count: usize) {
        if count == 0 {
            let path = self.path_without_indices();
            self.state.used_settings.borrow_mut().unbuilt.insert(path);
        }
    }

    /// Returns the builder of element `index` of this repeated field of `L`, with the policy of the field.
    pub(in crate::nn) fn repeated<L: 'static>(&mut self, index: usize) -> Builder<'a> {
        self.contained::<L>(self.join(&index.to_string()))
    }

    /// Returns the builder of the layer in this optional field of `L`, with the policy of the field.
    pub(in crate::nn) fn optional<L: 'static>(&mut self) -> Builder<'a> {
        self.contained::<L>(self.path.clone())
    }

    /// Returns the builder of element `index` of this tuple.
    pub(in crate::nn) fn tuple_element(&self, index: usize) -> Builder<'a> {
        self.at_path(self.join(&index.to_string()))
    }

    fn contained<L: 'static>(&self, path: String) -> Builder<'a> {
        let mut child = self.at_path(path);
        child.elements.push(TypeId::of::<L>());
        child.recompute = self.recompute;
        child
    }

    /// The path of the field that this is, or whose element this is.
    pub(super) fn field_path(&self) -> &str {
        let mut path = self.path.as_str();
        while let Some((field, index)) = path.rsplit_once('.')
            && is_index(index)
        {
            path = field;
        }
        path
    }

    /// The name of the field that this is, or whose element this is.
    pub(super) fn field_name(&self) -> &str {
        self.field_path().rsplit('.').next().unwrap_or_default()
    }

    pub(super) fn path_without_indices(&self) -> String {
        without_indices(&self.path)
    }
}

impl BuildState<'_> {
    /// Returns the problems of settings of fields that the model does not have.
    pub(super) fn unused_field_settings(&self) -> Vec<String> {
        let used_settings = self.used_settings.borrow();
        let used = &*used_settings;
        let (sizes, mut problems) = (self.sizes, Vec::new());
        let mut check =
            |call, layer, names: &mut dyn Iterator<Item = &String>, used: &BTreeSet<String>| {
                let unused = names
                    .filter(|name| !used.contains(*name) && !used_settings.is_inside_unbuilt(name));
                problems.extend(unused.map(|name| applies_to_nothing(call, layer, name)));
            };
        let optional = sizes.optional();
        // An absent field that the model does not know is absent, unless it was to be an exception from another name.
        let is_exception = |name: &str| {
            name.match_indices('.').any(|(at, _)| optional.contains_key(&name[at + 1..]))
        };
        let checked =
            optional.iter().filter(|(name, is_present)| **is_present || is_exception(name));
        check("with_optional", "`Option`", &mut checked.map(|(name, _)| name), &used.optional);
        check("with_count", "`Vec`", &mut sizes.counts().keys(), &used.counts);
        check("with_dropout", "`Dropout`", &mut sizes.dropouts().keys(), &used.dropouts);
        check("with_norm", "norm", &mut sizes.norms().keys(), &used.norms);
        check("with_rope", "`Rope`", &mut sizes.ropes_of_fields().keys(), &used.ropes);
        problems
    }
}

/// Returns the problem of a setting of fields that the model does not have.
fn applies_to_nothing(call: &str, layer: &str, name: &str) -> String {
    format!(
        "`Sizes::{call}(\"{name}\", ..)` applies to nothing: the model has no {layer} in a field of this name; one \
         inside a field that the model does not have is named with it, as `absent.{name}`"
    )
}
