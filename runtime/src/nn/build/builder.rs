//! What fields build themselves with.

use std::any::TypeId;
use std::rc::Rc;

use crate::comm::Site;
use crate::layout::{AxisId, Dim, DimInfo, Dims};
use crate::tensor::{Extent, Init, Param, ParamRef, Rank, Role, Unit, shape_name};

use super::super::{RecomputePolicy, Sizes};
use super::State;

/// Where a model is being built: the rank, the sizes, and the path of the field at hand.
pub struct Builder<'a> {
    state: &'a State<'a>,
    path: String,
    unit: Rc<Unit>,
    /// Paths that begin with the first are those of the second.
    tie: Option<(String, String)>,
    /// How what is built here is recomputed.
    recompute: Option<RecomputePolicy>,
    /// The layers of the stacks that this field is in.
    stacked: Vec<TypeId>,
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
    /// The builder of the whole model.
    pub(super) fn new(state: &'a State<'a>, unit: Rc<Unit>) -> Builder<'a> {
        let (path, stacked) = (String::new(), Vec::new());
        Builder { state, path, unit, tie: None, recompute: None, stacked }
    }

    /// The builder of field `name`. A field of the whole model is a [`unit`](Self::unit) of its own.
    pub fn field(&mut self, name: &str) -> Builder<'a> {
        let mut child = self.child(name);
        self.state.fields.borrow_mut().entry(self.path.clone()).or_default().push(name.to_owned());
        if self.path.is_empty() {
            child.unit();
        }
        child
    }

    /// The builder of element `index` of a stack of `M`: a unit of its own.
    pub(crate) fn element<M: 'static>(&mut self, index: usize) -> Builder<'a> {
        let mut child = self.child(&index.to_string());
        child.stacked.push(TypeId::of::<M>());
        child.unit();
        child
    }

    /// Makes the parameters declared from here on, but for those of units inside, a unit of their own: they are
    /// reduced, gathered and updated together. `#[sharded(fsdp)]` says so.
    pub fn unit(&mut self) -> &mut Self {
        self.unit = Unit::new(self.state.rank, &self.path);
        self.state.units.borrow_mut().push(Rc::clone(&self.unit));
        self
    }

    /// Says how what is built here is recomputed, where it is a [`Stack`](crate::nn::Stack) or
    /// [`Recomputed`](crate::nn::Recomputed). `#[recompute(..)]` says so.
    pub fn recompute(&mut self, policy: RecomputePolicy) -> &mut Self {
        self.recompute = Some(policy);
        self.state.declares_recompute.set(true);
        self
    }

    /// Makes the parameters of this field those of the field at `target`, a path that starts beside this field; with
    /// `when`, only if that flag of the sizes is set.
    ///
    /// A parameter belongs to the unit in which it was declared first. As a tied field declares none, and what is inside
    /// of a field is tied to what is inside of it too, no two units can need parameters of each other.
    pub fn tie(&mut self, target: &str, when: Option<&str>) -> &mut Self {
        if when.is_none_or(|flag| self.state.sizes.flag(flag)) {
            let target = match self.path.rsplit_once('.') {
                Some((parent, _)) => format!("{parent}.{target}"),
                None => target.to_owned(),
            };
            self.tie = Some((self.path.clone(), target));
        }
        self
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
    pub fn param<S: Dims>(&mut self, name: &str, init: Init) -> Param<S> {
        self.param_in_parts(name, init, Parts::Even)
    }

    /// [`param`](Self::param), with a say in how split dims may be cut.
    pub fn param_in_parts<S: Dims>(&mut self, name: &str, init: Init, parts: Parts) -> Param<S> {
        self.declare(self.join(name), init, parts, Role::Layer)
    }

    /// Declares the parameter `name` of this field, whose first dim counts rows that stand for themselves, as the token
    /// ids of an embedding do: see [`ParamRef::is_table`]. Split dims may be cut into parts of different sizes.
    pub fn table<S: Dims>(&mut self, name: &str, init: Init) -> Param<S> {
        self.declare(self.join(name), init, Parts::Uneven, Role::Table)
    }

    /// Declares this field itself as a parameter shaped `S`.
    pub(crate) fn own_param<S: Dims>(&mut self, init: Init) -> Param<S> {
        self.declare(self.path.clone(), init, Parts::Even, Role::Field)
    }

    fn declare<S: Dims>(&mut self, path: String, init: Init, parts: Parts, role: Role) -> Param<S> {
        self.check_param_dims(S::DIMS);
        if let Some(target) = self.tied_path(&path) {
            if let Some(param) = self.state.declared(&target) {
                self.check_tie(&param, S::DIMS);
                return Param::new(param);
            }
            self.problem(format_args!(
                "is tied to `{target}`, which is not a parameter declared before it"
            ));
        }
        let extents = S::DIMS.iter().map(|dim| self.extent(dim, parts)).collect();
        let param = ParamRef::new(&path, S::DIMS, S::READS, extents, init, role, &self.unit);
        self.state.params.borrow_mut().push(param.clone());
        Param::new(param)
    }

    /// A parameter's dims are the same on the ranks that compute with the same parameters.
    fn check_param_dims(&self, dims: &[DimInfo]) {
        let is_wrong = |dim: &&DimInfo| {
            !dim.home.is_empty() || dim.split.is_some_and(|axis| axis != AxisId::Tp)
        };
        if let Some(dim) = dims.iter().find(is_wrong) {
            self.problem(format_args!(
                "a parameter cannot have the dim `{dim}`, which is distributed over {}: the ranks of the axis compute with \
                 the same parameters; declare the dims of parameters without `@`, and split them over tp if at all",
                dim.axes()
            ));
        }
    }

    /// What is tied to a parameter has its dims.
    fn check_tie(&self, target: &ParamRef, dims: &[DimInfo]) {
        let is_same = target.dims().len() == dims.len()
            && target.dims().iter().zip(dims).all(|(own, other)| own.is(other));
        if !is_same {
            self.problem(format_args!(
                "is shaped {}, and cannot be tied to `{}`, which is shaped {}: tie what has the same dims, split alike",
                shape_name(dims),
                target.path(),
                shape_name(target.dims())
            ));
        }
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

    /// Notes that a product is computed with a table, which may be another field's.
    pub(in crate::nn) fn note_product(&self, table: &ParamRef) {
        self.state.products.borrow_mut().insert(table.path().to_owned());
    }

    pub(crate) fn note_attention(&self, heads: usize, head_dim: usize) {
        self.state.attentions.borrow_mut().push((heads, head_dim));
        let mut leads = self.state.leads_to_attention.borrow_mut();
        match self.path.rsplit_once('.') {
            Some((model, _)) => {
                leads.extend(self.fields_of(model).iter().map(|field| format!("{model}.{field}")));
            }
            None => drop(leads.insert(self.path.clone())),
        }
    }

    /// Paths of the fields inside of the one at `path` that are attention, or declared before it in the same model.
    pub(in crate::nn) fn leads_to_attention(&self, path: &str) -> Vec<String> {
        let inside = format!("{path}.");
        let leads = self.state.leads_to_attention.borrow();
        leads.iter().filter(|lead| lead.starts_with(&inside)).cloned().collect()
    }

    /// The names of the fields of the model at `path`, as far as it has been built.
    pub(in crate::nn) fn fields_of(&self, path: &str) -> Vec<String> {
        self.state.fields.borrow().get(path).cloned().unwrap_or_default()
    }

    /// What was said of recomputing what is built here; not about what is inside of it.
    pub(in crate::nn) fn take_policy(&mut self) -> Option<RecomputePolicy> {
        self.recompute.take()
    }

    /// Notes that an override has found something to recompute.
    pub(in crate::nn) fn note_recomputed(&self) {
        self.state.is_recomputed.set(true);
    }

    /// Whether this field is inside of a stack.
    pub(in crate::nn) fn is_in_stack(&self) -> bool {
        !self.stacked.is_empty()
    }

    /// Whether this field is inside of a stack of `M`.
    pub(in crate::nn) fn is_in_stack_of<M: 'static>(&self) -> bool {
        self.stacked.contains(&TypeId::of::<M>())
    }

    /// Path of the field being built.
    pub(in crate::nn) fn path(&self) -> &str {
        &self.path
    }

    fn child(&self, name: &str) -> Builder<'a> {
        Builder {
            state: self.state,
            path: self.join(name),
            unit: Rc::clone(&self.unit),
            tie: self.tie.clone(),
            recompute: None,
            stacked: self.stacked.clone(),
        }
    }

    pub(in crate::nn) fn join(&self, name: &str) -> String {
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
