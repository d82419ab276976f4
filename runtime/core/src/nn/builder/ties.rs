//! Ties: fields that share the parameters of fields declared before them.

use crate::layout::DimInfo;
use crate::tensor::{ParamRef, shape_name};

use super::Builder;

impl Builder<'_> {
    /// Ties this field to the field at `target`, a path relative to the model that contains both: the two share their
    /// parameters. With `when`, they are tied only if that flag of the sizes is set.
    ///
    /// A parameter belongs to the unit that declares it first. A tied field declares no parameters, and its nested
    /// fields are tied to the nested fields of the target, so two units never need parameters of each other.
    pub fn tie(&mut self, target: &str, when: Option<&str>) -> &mut Self {
        if let Some(flag) = when.filter(|flag| !self.state.sizes.has_flag(flag)) {
            self.problem(format_args!(
                "is tied to `{target}` if the flag `{flag}` is set, but the sizes of the model do not say so: add \
                 `.with_flag(\"{flag}\", ..)` to them"
            ));
        }
        if when.is_none_or(|flag| self.state.sizes.flag(flag)) {
            let target = match self.path.rsplit_once('.') {
                Some((parent, _)) => format!("{parent}.{target}"),
                None => target.to_owned(),
            };
            self.tie = Some((self.path.clone(), target));
        }
        self
    }

    /// Returns the parameter that the one at `path`, of these dims, shares; `None` if it is not tied, or cannot be.
    pub(super) fn shared_param(&self, path: &str, dims: &[DimInfo]) -> Option<ParamRef> {
        let (target, param) = self.tied_param(path)?;
        let Some(param) = param else {
            self.problem(format_args!(
                "is tied to `{target}`, which is not a parameter declared before it"
            ));
            return None;
        };
        self.check_tie(&param, dims);
        self.note_tied_init();
        self.state.tied.borrow_mut().push((path.to_owned(), param.clone()));
        Some(param)
    }

    /// Returns the path of the parameter that the one at `path` is tied to, and the parameter, if it has been declared.
    fn tied_param(&self, path: &str) -> Option<(String, Option<ParamRef>)> {
        let (from, to) = self.tie.as_ref()?;
        let inner = path.strip_prefix(from.as_str())?;
        let target = format!("{to}{inner}");
        let param = self.state.declared_param(&target).or_else(|| match inner {
            // A field that is a parameter itself, tied to a layer with a single one, or a layer tied to such a field.
            "" => self.state.only_param_of(to),
            _ => self.state.declared_param(to),
        });
        Some((target, param))
    }

    /// Checks that a tied parameter has the dims of its target, and that both are trained or both are frozen.
    fn check_tie(&self, target: &ParamRef, dims: &[DimInfo]) {
        let is_same = target.dims().len() == dims.len()
            && target.dims().iter().zip(dims).all(|(own, other)| own.is_same_dim(other));
        if !is_same {
            self.problem(format_args!(
                "is shaped {}, and cannot be tied to `{}`, which is shaped {}: tied parameters have the same dims, \
                 split alike",
                shape_name(dims),
                target.path(),
                shape_name(target.dims())
            ));
        }
        let path = target.path();
        match (self.params.is_frozen, target.is_frozen()) {
            (false, true) => self.problem(format_args!(
                "is trained, but tied to `{path}`, which is frozen: put `#[frozen]` on both fields, or on neither"
            )),
            (true, false) => self.problem(format_args!(
                "is frozen, but tied to `{path}`, which is trained: put `#[frozen]` on both fields, or on neither"
            )),
            _ => {}
        }
    }
}
