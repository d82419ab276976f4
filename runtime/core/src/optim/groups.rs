//! Parameter groups: weight decay, learning-rate factor and role of each parameter.

use std::fmt;

use crate::tensor::ParamRef;

/// Rules that assign each parameter to a [`Group`].
///
/// By default, parameters of two dims or more [decay](ParamRef::decays), every parameter has the same learning rate,
/// and Muon takes the [matrices](Group::matrix) of layers. Rules change that for the parameters that they select; if
/// several rules select one parameter, the last one applies.
///
/// ```
/// use meshwright::optim::{ParamGroups, Select};
///
/// let groups = ParamGroups::default()
///     .decay(Select::dim("Vocab"), false)
///     .lr_scale(Select::path("blocks.*.attn.**"), 0.5)
///     .matrix(Select::path("positions"), false);
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ParamGroups {
    rules: Vec<(Select, Change)>,
}

/// Settings of the update of a group's parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Group {
    /// Factor on the learning rate.
    pub lr_scale: f64,
    /// Weight decay applies.
    pub decays: bool,
    /// The parameter is a matrix in the sense of Muon: it maps features to features. By default that is every parameter
    /// of a layer with dims that it reads and dims that it writes, except [tables](ParamRef::is_table) such as the
    /// weights of embeddings, positions and heads. A `Param` that is itself a field of a model may be anything, so only
    /// a rule makes it a matrix.
    pub matrix: bool,
}

/// The parameters that a rule applies to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Select {
    /// Parameters with this number of dims; a bias over `(Heads, HeadDim)` has two.
    Dims(usize),
    /// Parameters over a dim with this name.
    Dim(String),
    /// Parameters whose paths match a pattern: `*` matches one name or number between dots, `**` any number of them.
    Path(String),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Change {
    LrScale(f64),
    Decay(bool),
    Matrix(bool),
}

/// A rule that does not fit the model.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupsError {
    /// A rule that selects no parameter: most likely a misspelled name.
    #[error(
        "parameter groups: {select} selects no parameter of the model; its parameters are {paths}"
    )]
    Nothing {
        /// The rule.
        select: Select,
        /// Paths of the parameters of the model.
        paths: String,
    },
    /// A learning-rate factor out of range.
    #[error(
        "parameter groups: {select} has the learning rate scaled by {scale}; it must be a finite number of at least 0"
    )]
    Scale {
        /// The rule.
        select: Select,
        /// The factor.
        scale: f64,
    },
    /// A parameter that does not map features to features.
    #[error(
        "parameter groups: {select} makes a matrix of `{path}`, which does not map features to features"
    )]
    NoMatrix {
        /// The rule.
        select: Select,
        /// The parameter.
        path: String,
    },
}

impl Group {
    /// Every combination of weight decay and matrix.
    #[doc(hidden)]
    pub const ALL: [Group; 4] = [
        Group { lr_scale: 1.0, decays: false, matrix: false },
        Group { lr_scale: 1.0, decays: false, matrix: true },
        Group { lr_scale: 1.0, decays: true, matrix: false },
        Group { lr_scale: 1.0, decays: true, matrix: true },
    ];

    /// Returns `weight_decay` if weight decay applies, else 0.
    pub(super) fn weight_decay(&self, weight_decay: f64) -> f64 {
        if self.decays { weight_decay } else { 0.0 }
    }
}

impl ParamGroups {
    /// Sets whether weight decay applies to the selected parameters.
    pub fn decay(self, select: Select, decays: bool) -> ParamGroups {
        self.with_change(select, Change::Decay(decays))
    }

    /// Multiplies the learning rate of the selected parameters by `scale`; 0 freezes them, weight decay included.
    pub fn lr_scale(self, select: Select, scale: f64) -> ParamGroups {
        self.with_change(select, Change::LrScale(scale))
    }

    /// Sets whether Muon treats the selected parameters as matrices; AdamW updates the others.
    pub fn matrix(self, select: Select, matrix: bool) -> ParamGroups {
        self.with_change(select, Change::Matrix(matrix))
    }

    fn with_change(mut self, select: Select, change: Change) -> ParamGroups {
        self.rules.push((select, change));
        self
    }

    /// Returns the group of a parameter.
    pub fn of(&self, param: &ParamRef) -> Group {
        let mut group = Group {
            lr_scale: 1.0,
            decays: param.decays(),
            matrix: has_two_sides(param) && param.is_of_layer(),
        };
        for (_, change) in self.rules.iter().filter(|(select, _)| select.selects_param(param)) {
            match *change {
                Change::LrScale(scale) => group.lr_scale = scale,
                Change::Decay(decays) => group.decays = decays,
                Change::Matrix(matrix) => group.matrix = matrix,
            }
        }
        group
    }

    /// Checks that every rule selects parameters that it can apply to.
    ///
    /// # Errors
    /// The first rule that does not.
    pub fn check(&self, params: &[ParamRef]) -> Result<(), GroupsError> {
        for (select, change) in &self.rules {
            let mut selected = params.iter().filter(|param| select.selects_param(param)).peekable();
            if selected.peek().is_none() {
                let paths: Vec<&str> = params.iter().map(ParamRef::path).collect();
                return Err(GroupsError::Nothing {
                    select: select.clone(),
                    paths: paths.join(", "),
                });
            }
            match *change {
                Change::LrScale(scale) if !scale.is_finite() || scale < 0.0 => {
                    return Err(GroupsError::Scale { select: select.clone(), scale });
                }
                Change::Matrix(true) => {
                    if let Some(param) = selected.find(|param| !has_two_sides(param)) {
                        let path = param.path().to_owned();
                        return Err(GroupsError::NoMatrix { select: select.clone(), path });
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Returns true if the parameter is one matrix: stacked weights are several.
fn has_two_sides(param: &ParamRef) -> bool {
    param.stacked() == 0 && param.weight_sides().iter().all(|side| !side.is_empty())
}

impl Select {
    /// Selects parameters over the dim with this name: `Vocab`.
    pub fn dim(name: &str) -> Select {
        Select::Dim(name.to_owned())
    }

    /// Selects parameters whose paths match this pattern: `blocks.*.mlp.**`.
    pub fn path(pattern: &str) -> Select {
        Select::Path(pattern.to_owned())
    }

    fn selects_param(&self, param: &ParamRef) -> bool {
        match self {
            Select::Dims(count) => param.dims().len() == *count,
            Select::Dim(name) => param.dims().iter().any(|dim| dim.name == name),
            Select::Path(pattern) => {
                let split = |text| str::split(text, '.').collect::<Vec<_>>();
                matches_pattern(&split(pattern), &split(param.path()))
            }
        }
    }
}

fn matches_pattern(pattern: &[&str], path: &[&str]) -> bool {
    match (pattern, path) {
        ([], []) => true,
        (["**", rest @ ..], _) => {
            (0..=path.len()).any(|skipped| matches_pattern(rest, &path[skipped..]))
        }
        ([first, rest @ ..], [part, parts @ ..]) => {
            (*first == "*" || first == part) && matches_pattern(rest, parts)
        }
        _ => false,
    }
}

impl fmt::Display for Select {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Select::Dims(count) => write!(f, "the number of dims {count}"),
            Select::Dim(name) => write!(f, "the dim `{name}`"),
            Select::Path(pattern) => write!(f, "the path `{pattern}`"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_parts_of_a_path() {
        let fits = |pattern: &str, path: &str| {
            matches_pattern(
                &pattern.split('.').collect::<Vec<_>>(),
                &path.split('.').collect::<Vec<_>>(),
            )
        };
        for (pattern, path, expected) in [
            ("embed.weight", "embed.weight", true),
            ("embed", "embed.weight", false),
            ("blocks.*.attn.q.weight", "blocks.12.attn.q.weight", true),
            ("blocks.*.weight", "blocks.12.attn.q.weight", false),
            ("blocks.**", "blocks.12.attn.q.weight", true),
            ("**.weight", "blocks.12.attn.q.weight", true),
            ("**.weight", "weight", true),
            ("**.attn.**", "blocks.3.mlp.up.weight", false),
        ] {
            assert_eq!(fits(pattern, path), expected, "{pattern} and {path}");
        }
    }
}
