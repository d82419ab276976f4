//! Building a model on a rank: sizes are checked for the whole model before anything is allocated.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::comm::Site;
use crate::layout::{Dim, DimInfo, Shape};
use crate::tensor::{Extent, Init, Param, ParamRef, Rank, Unit};

use super::Sizes;

/// What a field of a model can be: something that builds itself from the model's sizes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a field of a model",
    label = "not a layer, a parameter or a model",
    note = "annotate a struct of your own with `#[model]`, or implement `Build` for a layer of your own"
)]
pub trait Build: Sized {
    /// Declares the parameters and builds the value.
    fn build(builder: &mut Builder<'_>) -> Self;
}

/// Builds `M` on `rank` with `sizes`: declares every parameter, checks every size, then allocates and initialises.
///
/// # Errors
/// Every violation of the whole model at once: dims without a size, dims that do not divide by the axis they are split
/// over, heads that do not fit together.
pub fn build<M: Build>(rank: &Rank, sizes: &Sizes) -> Result<Built<M>, BuildError> {
    let built = declare(rank, sizes)?;
    for unit in &built.units {
        unit.allocate(rank);
    }
    rank.add_units(&built.units);
    Ok(built)
}

/// Declares every parameter of `M` and checks every size, without allocating anything.
///
/// # Errors
/// As [`build`].
pub(crate) fn declare<M: Build>(rank: &Rank, sizes: &Sizes) -> Result<Built<M>, BuildError> {
    let state = State {
        rank,
        sizes,
        units: RefCell::default(),
        params: RefCell::default(),
        attentions: RefCell::default(),
        problems: RefCell::default(),
    };
    let root = Unit::new(rank, "model");
    state.units.borrow_mut().push(Rc::clone(&root));
    let model =
        M::build(&mut Builder { state: &state, path: String::new(), unit: root, tie: None });
    let State { units, attentions, problems, params: declared, .. } = state;
    let problems = problems.into_inner();
    if !problems.is_empty() {
        return Err(BuildError { problems: problems.into_iter().collect() });
    }
    let mut units = units.into_inner();
    units.retain(|unit| !unit.is_empty());
    let params = units.iter().flat_map(|unit| unit.params()).collect();
    // Until here they were held by name: a layer may declare a parameter without keeping it.
    drop(declared);
    Ok(Built { model, units, attentions: attentions.into_inner(), params })
}

/// A model, and what is known of it as a whole.
pub struct Built<M> {
    /// The model.
    pub model: M,
    /// Its parameters, unit by unit.
    pub units: Vec<Rc<Unit>>,
    /// Heads and head dim (global) of every attention, for the count of FLOPs.
    pub attentions: Vec<(usize, usize)>,
    params: Vec<ParamRef>,
}

impl<M> Built<M> {
    /// Every parameter, in the order in which the model declares them.
    pub fn params(&self) -> Vec<ParamRef> {
        self.params.clone()
    }

    /// Number of elements of the global model.
    pub fn global_len(&self) -> usize {
        self.params.iter().map(ParamRef::global_len).sum()
    }
}

/// Sizes that the model, or the mesh, does not allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildError {
    /// One line each, with the field at its start.
    pub problems: Vec<String>,
}

impl std::fmt::Display for BuildError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.problems.as_slice() {
            [problem] => write!(f, "the model cannot be built: {problem}"),
            problems => {
                write!(f, "the model cannot be built, for {} reasons:", problems.len())?;
                problems.iter().try_for_each(|problem| write!(f, "\n  - {problem}"))
            }
        }
    }
}

impl std::error::Error for BuildError {}

struct State<'a> {
    rank: &'a Rank,
    sizes: &'a Sizes,
    units: RefCell<Vec<Rc<Unit>>>,
    params: RefCell<BTreeMap<String, ParamRef>>,
    attentions: RefCell<Vec<(usize, usize)>>,
    /// Ordered and without repetition: the layers of a stack have the same ones.
    problems: RefCell<BTreeSet<String>>,
}

/// Where a model is being built: the rank, the sizes, and the path of the field at hand.
pub struct Builder<'a> {
    state: &'a State<'a>,
    path: String,
    unit: Rc<Unit>,
    /// Paths that begin with the first are those of the second.
    tie: Option<(String, String)>,
}

/// Whether a split dim may be cut into parts of different sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parts {
    /// The dim must divide by the degree of the axis.
    Even,
    /// Parts may differ by one element.
    Uneven,
}

impl<'a> Builder<'a> {
    /// The builder of field `name`.
    pub fn field(&mut self, name: &str) -> Builder<'a> {
        let mut child = self.child(name);
        if self.path.is_empty() {
            child.begin_unit();
        }
        child
    }

    /// The builder of element `index` of a stack: a unit of its own.
    pub(crate) fn element(&mut self, index: usize) -> Builder<'a> {
        let mut child = self.child(&index.to_string());
        child.begin_unit();
        child
    }

    /// Makes the parameters of this field those of the field at `target`, a path that starts beside this field; with
    /// `when`, only if that flag of the sizes is set.
    pub fn tie(&mut self, target: &str, when: Option<&str>) {
        if when.is_none_or(|flag| self.state.sizes.flag(flag)) {
            let target = match self.path.rsplit_once('.') {
                Some((parent, _)) => format!("{parent}.{target}"),
                None => target.to_owned(),
            };
            self.tie = Some((self.path.clone(), target));
        }
    }

    /// The rank that the model is built on.
    pub fn rank(&self) -> &Rank {
        self.state.rank
    }

    /// The sizes and settings of the model.
    pub fn sizes(&self) -> &Sizes {
        self.state.sizes
    }

    /// The field being built, as the origin of collectives.
    pub fn site(&self) -> Site {
        Site::new(self.path.as_str())
    }

    /// The global size of dim `D`; where it was not given, that is noted as a problem and 1 is returned.
    pub fn size<D: Dim>(&self) -> usize {
        self.size_of(&D::INFO)
    }

    /// Declares the parameter `name` of this field, shaped `S`. Split dims must divide evenly.
    pub fn param<S: Shape>(&mut self, name: &str, init: Init) -> Param<S> {
        self.param_in_parts(name, init, Parts::Even)
    }

    /// [`param`](Self::param), with a say in how split dims may be cut.
    pub fn param_in_parts<S: Shape>(&mut self, name: &str, init: Init, parts: Parts) -> Param<S> {
        self.declare(self.join(name), init, parts)
    }

    /// Declares this field itself as a parameter shaped `S`.
    pub(crate) fn own_param<S: Shape>(&mut self, init: Init) -> Param<S> {
        self.declare(self.path.clone(), init, Parts::Even)
    }

    fn declare<S: Shape>(&mut self, path: String, init: Init, parts: Parts) -> Param<S> {
        if let Some(target) = self.tied_path(&path) {
            let known = self.state.params.borrow().get(&target).cloned();
            if let Some(param) = known {
                return Param::new(param);
            }
            self.problem(format_args!(
                "is tied to `{target}`, which is not a parameter declared before it"
            ));
        }
        let extents = S::DIMS.iter().map(|dim| self.extent(dim, parts)).collect();
        let param = ParamRef::new(&path, S::DIMS, S::READS, extents, init, &self.unit);
        self.state.params.borrow_mut().insert(path, param.clone());
        Param::new(param)
    }

    /// Notes something that keeps the model from being built. `what` continues a sentence that begins with the field.
    pub fn problem(&self, what: std::fmt::Arguments<'_>) {
        let path: Vec<&str> = self
            .path
            .split('.')
            .map(|part| if part.parse::<usize>().is_ok() { "*" } else { part })
            .collect();
        self.state.problems.borrow_mut().insert(format!("`{}`: {what}", path.join(".")));
    }

    pub(crate) fn note_attention(&self, heads: usize, head_dim: usize) {
        self.state.attentions.borrow_mut().push((heads, head_dim));
    }

    fn child(&self, name: &str) -> Builder<'a> {
        Builder {
            state: self.state,
            path: self.join(name),
            unit: Rc::clone(&self.unit),
            tie: self.tie.clone(),
        }
    }

    fn begin_unit(&mut self) {
        self.unit = Unit::new(self.state.rank, &self.path);
        self.state.units.borrow_mut().push(Rc::clone(&self.unit));
    }

    fn join(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    fn tied_path(&self, path: &str) -> Option<String> {
        let (from, to) = self.tie.as_ref()?;
        Some(format!("{to}{}", path.strip_prefix(from.as_str())?))
    }

    fn size_of(&self, dim: &DimInfo) -> usize {
        match self.state.sizes.of(dim) {
            Some(0) => {
                self.problem(format_args!("{} = 0, but a dim has at least one element", dim.name));
                1
            }
            Some(size) => size,
            None => {
                self.problem(format_args!(
                    "{0} has no size: give it with `Sizes::with({0}, ..)`",
                    dim.name
                ));
                1
            }
        }
    }

    fn extent(&self, dim: &DimInfo, parts: Parts) -> Extent {
        let size = self.size_of(dim);
        if let Some(axis) = dim.split {
            let degree = self.state.rank.degree(axis);
            if parts == Parts::Even && !size.is_multiple_of(degree) {
                self.problem(format_args!(
                    "{} = {size} does not divide by {axis} = {degree}",
                    dim.name
                ));
            } else if size < degree {
                self.problem(format_args!("{} = {size} is less than {axis} = {degree}", dim.name));
            }
        }
        Extent::of(dim, size, self.state.rank)
    }
}
