//! Settings of the parameters that a field declares, inherited by the fields inside it: frozen, and initial values.

use std::cell::Cell;
use std::rc::Rc;

use crate::tensor::{Init, InitialValues};

use super::super::Layers;
use super::Builder;
use super::declare::BuildState;
use super::field_init::FieldInit;
use super::field_settings::{ends_with, without_indices};

/// Settings of the parameters that are declared from here on.
#[derive(Clone)]
pub(super) struct ParamSettings {
    /// True if they are not trained.
    pub(super) is_frozen: bool,
    /// Initial values that replace those of the layers; later ones precede.
    inits: Vec<Rc<FieldInit>>,
    /// The length of the path, without indices, of a field whose initial values, by its name or that of a field around
    /// it, are not those of the parameters.
    outer_field: usize,
}

impl ParamSettings {
    /// Creates the settings of a model whose layers have their own initial values.
    pub(super) fn new(is_frozen: bool) -> ParamSettings {
        ParamSettings { is_frozen, inits: Vec::new(), outer_field: 0 }
    }
}

impl<'a> Builder<'a> {
    /// Freezes the parameters declared from here on, also those of nested fields: they are not trained, and have
    /// neither gradients nor optimizer state. Called for `#[frozen]`.
    pub fn freeze(&mut self) -> &mut Self {
        self.params.is_frozen = true;
        self
    }

    /// Returns the builder of the part `name` of an adapter of the layer in this field: it is trained, and the initial
    /// values of the layer do not apply to it.
    pub(in crate::nn) fn adapter_field(&mut self, name: &str) -> Builder<'a> {
        let mut child = self.field(name);
        let outer_field = without_indices(&self.path).len();
        child.params = ParamSettings { is_frozen: false, inits: Vec::new(), outer_field };
        child
    }

    /// Sets the initial values of the parameters declared from here on, also those of nested fields: of all, or of
    /// those named `param`. They replace the values of the layers; [`Sizes::with_init`](super::Sizes::with_init)
    /// replaces them. Called for `#[init(..)]`.
    pub fn init(&mut self, param: Option<&str>, init: Init) -> &mut Self {
        let path = self.path.clone();
        let param = param.map(str::to_owned);
        let rule = Rc::new(FieldInit { path, param, init, is_used: Cell::new(false) });
        self.state.inits.borrow_mut().push(Rc::clone(&rule));
        self.params.inits.push(rule);
        self
    }

    /// Sets the initial values as [`init`](Self::init) does, to normally distributed ones of the standard deviation
    /// [`init_std`](super::Sizes::init_std)` / sqrt(2 Layers)`: for the last weights of the two branches in each layer
    /// of a residual network (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019). Called for
    /// `#[init(scaled)]`.
    pub fn scaled_init(&mut self, param: Option<&str>) -> &mut Self {
        let branches = 2.0 * self.size::<Layers>() as f32;
        let std = self.sizes().init_std / branches.sqrt();
        self.init(param, Init::Normal(std))
    }

    /// Returns the initial values of the parameter at `path`, for which its layer has declared `of_layer`: of the
    /// sizes, else of the innermost attribute, else those of the layer. Its first dim has `rows` elements.
    pub(super) fn init_of(&self, path: &str, of_layer: Init, rows: Option<usize>) -> InitialValues {
        let name = path.rsplit('.').next().unwrap_or_default();
        let is_of = |rule: &&Rc<FieldInit>| rule.param.as_deref().is_none_or(|param| param == name);
        let mut of_field = None;
        for rule in self.params.inits.iter().filter(is_of) {
            rule.is_used.set(true);
            of_field = Some(rule.init);
        }
        let of_sizes = self.init_of_sizes(path);
        let values = InitialValues::from(of_layer);
        let Some(init) = of_sizes.or(of_field) else { return values };
        if let Some(mistake) = init.mistake() {
            self.state.problem(path, format_args!("its initial values {mistake}"));
        }
        let values = values.replaced_by(init);
        if let (Some(row), Some(rows)) = (values.zero_row(), rows)
            && row >= rows
        {
            let message =
                format_args!("its initial values have zeros in row {row}, beyond its {rows} rows");
            self.state.problem(path, message);
        }
        values
    }

    /// Returns the initial values that the sizes set for the parameter at `path`: by the name that selects the
    /// innermost field, or else by the longest.
    fn init_of_sizes(&self, path: &str) -> Option<Init> {
        let path = without_indices(path);
        let fields = path.match_indices('.').map(|(end, _)| &path[..end]).chain([path.as_str()]);
        let mut used = self.state.used_settings.borrow_mut();
        let mut found = None;
        for field in fields.filter(|field| field.len() > self.params.outer_field) {
            let named = self.sizes().inits().iter().filter(|(name, _)| ends_with(field, name));
            let longest = named.clone().max_by_key(|(name, _)| name.len());
            found = longest.map(|(_, init)| *init).or(found);
            used.inits.extend(named.map(|(name, _)| name.clone()));
        }
        found
    }

    /// Notes that the parameter at `path` is tied: its initial values are those of its target, also if an attribute has
    /// others for the case that it is not tied.
    pub(super) fn note_tied_init(&self) {
        self.params.inits.iter().for_each(|rule| rule.is_used.set(true));
    }
}

impl BuildState<'_> {
    /// Records the problems of attributes with initial values for no parameter.
    pub(super) fn check_inits(&self) {
        let used = self.used_settings.borrow();
        let is_absent = |path: &str| {
            let path = without_indices(path);
            let is_inside = |absent: &String| {
                absent
                    .strip_prefix(&path)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            };
            used.unbuilt.iter().any(is_inside)
        };
        let unused = self.inits.borrow();
        for rule in unused.iter().filter(|rule| !rule.is_used.get() && !is_absent(&rule.path)) {
            let params = self.params.borrow();
            let inside = params.iter().filter_map(|param| {
                let inner = param.path().strip_prefix(&rule.path)?;
                (inner.is_empty() || inner.starts_with('.')).then(|| param.path())
            });
            let mut names: Vec<&str> =
                inside.map(|path| path.rsplit('.').next().unwrap_or_default()).collect();
            names.sort_unstable();
            names.dedup();
            let names = names.join("`, `");
            match &rule.param {
                Some(param) if !names.is_empty() => self.problem(
                    &rule.path,
                    format_args!(
                        "`#[init({param} = ..)]` applies to nothing: its parameters are `{names}`"
                    ),
                ),
                _ => self.problem(
                    &rule.path,
                    format_args!("`#[init(..)]` applies to nothing: the field has no parameters"),
                ),
            }
        }
    }

    /// Returns the problems of initial values in the sizes that no parameter has.
    pub(super) fn unused_inits(&self) -> Vec<String> {
        let used = self.used_settings.borrow();
        let tied = self.tied.borrow();
        let is_unused =
            |name: &&String| !used.inits.contains(*name) && !used.is_inside_unbuilt(name);
        let problem = |name: &String| {
            let is_tied = |(path, _): &&(String, _)| {
                let path = without_indices(path);
                let mut fields = path.match_indices('.').map(|(end, _)| &path[..end]);
                ends_with(&path, name) || fields.any(|field| ends_with(field, name))
            };
            let reason = match tied.iter().find(is_tied) {
                Some((path, target)) => {
                    format!("`{path}` is tied, and begins as `{}`: name that", target.path())
                }
                None => "the model has no parameter of this name, or in a field of it".to_owned(),
            };
            format!("`Sizes::with_init(\"{name}\", ..)` applies to nothing: {reason}")
        };
        self.sizes.inits().keys().filter(is_unused).map(problem).collect()
    }
}
