//! Building a model on a rank: sizes are checked for the whole model before any memory is allocated.

mod adapters;
mod built;
mod context_styles;
mod declare;
mod field_init;
mod field_settings;
mod fields;
mod layer_settings;
mod param_settings;
mod stack_layer;
mod ties;
mod unit_family;

use std::any::TypeId;
use std::rc::Rc;

use crate::layout::{AxisId, AxisSet, Dim, DimInfo, Dims};
use crate::tensor::{Extent, Init, Param, ParamDims, ParamRef, Rank, Role, UnitTraining};
use meshwright_comm::Site;

use super::{AttentionOptions, HeadOptions, RecomputePolicy, Sizes};
use declare::BuildState;
use param_settings::ParamSettings;
use stack_layer::StackLayer;
use unit_family::UnitFamily;

pub use built::{AttentionSizes, BuildError, Built};
pub use declare::{Build, build};
pub use declare::{declare, declare_again, declare_first};

/// The context of building a field: the rank, the sizes, and the field's path.
pub struct Builder<'a> {
    state: &'a BuildState<'a>,
    path: String,
    units: Rc<UnitFamily>,
    /// Prefix of a tied path, and the prefix to replace it with.
    tie: Option<(String, String)>,
    /// The recomputation policy of this field.
    recompute: Option<RecomputePolicy>,
    /// Types of the elements of stacks, repeated and optional fields around this field.
    elements: Vec<TypeId>,
    /// The layer of the innermost stack around this field.
    layer: Option<StackLayer>,
    params: ParamSettings,
    /// The dim whose size this layer sets, and the size.
    own_size: Option<(TypeId, usize)>,
}

/// The sizes that the shards of a split dim may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShardSizes {
    /// Equal: the dim must be divisible by the degree of the axis.
    Even,
    /// Shards may differ by one element.
    Uneven,
}

impl<'a> Builder<'a> {
    /// Creates the builder of the root model.
    fn new(state: &'a BuildState<'a>) -> Builder<'a> {
        let (path, elements) = (String::new(), Vec::new());
        let units = UnitFamily::new(state, "model");
        let (tie, recompute, layer, own_size) = (None, None, None, None);
        // Beside adapters, nothing is trained but the fields that they name.
        let params = ParamSettings::new(state.sizes.lora.is_some());
        Builder { state, path, units, tie, recompute, elements, layer, own_size, params }
    }

    /// Returns the builder of field `name`. Each field of the root model is its own FSDP [`unit`](Self::unit).
    pub fn field(&mut self, name: &str) -> Builder<'a> {
        let mut child = self.child(name);
        self.state.fields.borrow_mut().entry(self.path.clone()).or_default().push(name.to_owned());
        if self.path.is_empty() {
            child.unit();
        }
        child
    }

    /// Begins a new FSDP unit for the parameters declared from here on, except the parameters of nested units: they are
    /// unsharded, reduced and updated together. Parameters that are split over data axes or `cp`, such as the
    /// parameters of experts, are summed over other ranks, so they make up a unit of their own. Called for
    /// `#[sharded(fsdp)]`.
    pub fn unit(&mut self) -> &mut Self {
        self.units = UnitFamily::new(self.state, &self.path);
        self
    }

    /// Sets the recomputation policy of this field, which must be a [`Stack`](crate::nn::Stack) or
    /// [`Recomputed`](crate::nn::Recomputed). Called for `#[recompute(..)]`.
    pub fn recompute(&mut self, policy: RecomputePolicy) -> &mut Self {
        self.recompute = Some(policy);
        self.state.declares_recompute.set(true);
        self
    }

    /// The rank on which the model is built.
    pub fn rank(&self) -> &Rank {
        self.state.rank
    }

    /// The sizes and settings of the model.
    pub fn sizes(&self) -> &Sizes {
        self.state.sizes
    }

    /// The call site for collectives issued by this field.
    pub fn site(&self) -> Site {
        Site::new(self.path.as_str())
    }

    /// Sets the size of a dim that belongs to this layer, as the taps of a convolution do.
    pub(in crate::nn) fn set_size<D: Dim>(&mut self, size: usize) {
        self.own_size = Some(((D::INFO.key)(), size));
    }

    /// Returns the global size of dim `D`. A missing size is recorded as a problem, and 1 is returned.
    pub fn size<D: Dim>(&self) -> usize {
        self.size_of(&D::INFO)
    }

    /// Declares the parameter `name` of this field, shaped `S`. Split dims must divide evenly.
    pub fn param<S: Dims>(&mut self, name: &str, init: Init) -> Param<S> {
        self.param_with_shards(name, init, ShardSizes::Even)
    }

    /// Declares a parameter as [`param`](Self::param) does, with a choice of the shard sizes of split dims.
    pub fn param_with_shards<S: Dims>(
        &mut self,
        name: &str,
        init: Init,
        shards: ShardSizes,
    ) -> Param<S> {
        self.declare_param(self.join(name), init, shards, Role::Layer)
    }

    /// Declares a parameter whose shards of split dims may differ in size, and which the field has for itself also if
    /// it is tied.
    pub(in crate::nn) fn untied_param<S: Dims>(&mut self, name: &str, init: Init) -> Param<S> {
        let tie = self.tie.take();
        let param = self.param_with_shards(name, init, ShardSizes::Uneven);
        self.tie = tie;
        param
    }

    /// Declares the parameter `name` of this field as a lookup table, such as an embedding, whose first dim counts
    /// independent rows: see [`ParamRef::is_table`]. Shards of split dims may differ in size.
    pub fn table<S: Dims>(&mut self, name: &str, init: Init) -> Param<S> {
        self.declare_param(self.join(name), init, ShardSizes::Uneven, Role::Table)
    }

    /// Declares the buffer `name` of this field, shaped `S`: a tensor that belongs to the model, and is saved, loaded
    /// and exported as its parameters are, but has no gradient. It is f32 at every compute dtype, and each rank has all
    /// of it that it computes with; [`ParamRef::write`] changes it between steps. Split dims must divide evenly.
    pub fn buffer<S: Dims>(&mut self, name: &str, init: Init) -> Param<S> {
        let (path, dims) = (self.join(name), ParamDims::of_shape::<S>());
        let training = UnitTraining::Buffers;
        Param::new(self.declare_ref(path, init, ShardSizes::Even, Role::Layer, dims, training))
    }

    /// Declares this field itself as a parameter shaped `S`.
    pub(crate) fn field_param<S: Dims>(&mut self, init: Init) -> Param<S> {
        self.declare_param(self.path.clone(), init, ShardSizes::Even, Role::Field)
    }

    fn declare_param<S: Dims>(
        &mut self,
        path: String,
        init: Init,
        shards: ShardSizes,
        role: Role,
    ) -> Param<S> {
        let training =
            if self.params.is_frozen { UnitTraining::Frozen } else { UnitTraining::Trained };
        let dims = ParamDims::of_shape::<S>();
        Param::new(self.declare_ref(path, init, shards, role, dims, training))
    }

    /// Declares a parameter of these dims.
    ///
    /// Independent of the shape's type, so that it is compiled once and not for each shape.
    fn declare_ref(
        &mut self,
        path: String,
        init: Init,
        shards: ShardSizes,
        role: Role,
        dims: ParamDims,
        training: UnitTraining,
    ) -> ParamRef {
        self.check_param_dims(dims.infos, dims.stacked);
        if let Some(param) = self.shared_param(&path, dims.infos) {
            return param;
        }
        self.state.rank.note_use_of(dims.varies);
        let extents = dims.infos.iter().map(|dim| self.extent(dim, shards)).collect();
        let unit = self.units.unit_for(self.state, dims.varies, training);
        let rows = dims.infos.first().map(|dim| self.size_of(dim));
        let init = self.init_of(&path, init, rows);
        let param = ParamRef::new(&path, dims, extents, init, role, &unit);
        self.state.params.borrow_mut().push(param.clone());
        param
    }

    /// Checks that no dim of a parameter, except one that counts `stacked` weights, is distributed over an axis whose
    /// ranks compute with the same parameters.
    fn check_param_dims(&self, dims: &[DimInfo], stacked: usize) {
        let [ep, cp, tp] = [AxisId::Ep, AxisId::Cp, AxisId::Tp].map(AxisSet::of);
        let is_wrong = |(index, dim): &(usize, &DimInfo)| {
            let allowed = if *index < stacked { ep.union(cp).union(tp) } else { tp };
            !dim.home.is_empty() || !dim.split.difference(allowed).is_empty()
        };
        if let Some((_, dim)) = dims.iter().enumerate().find(is_wrong) {
            self.problem(format_args!(
                "a parameter cannot have the dim `{dim}`, which is distributed over {}: the ranks of the axis compute \
                 with the same parameters; declare the dims of parameters without `@`, and split them over tp if at \
                 all, or the experts of stacked weights over ep, cp and tp",
                dim.axes()
            ));
        }
    }

    /// Records a problem that keeps the model from being built. `message` continues a sentence that begins with the
    /// field.
    pub fn problem(&self, message: std::fmt::Arguments<'_>) {
        self.state.problem(&self.path, message);
    }

    /// Records that a matmul reads a table, which may be declared by another field.
    pub(in crate::nn) fn note_matmul(&self, table: &ParamRef) {
        let entry = (table.path().to_owned(), self.path.clone());
        self.state.matmuls.borrow_mut().insert(entry);
    }

    /// Records that a token chooses `chosen` of the experts `E`, for the FLOP count.
    pub(in crate::nn) fn note_router<E: Dim>(&self, chosen: usize) {
        let fraction = chosen as f64 / self.size::<E>() as f64;
        self.state.chosen.borrow_mut().insert((E::INFO.key)(), fraction);
    }

    /// Returns the options of attention for this field.
    pub(in crate::nn) fn attention_options(&self) -> &'a AttentionOptions {
        let field = self.field_name();
        self.state.attention_fields.borrow_mut().insert(field.to_owned());
        self.state.sizes.attention_of(field)
    }

    /// Returns the options of heads and cross-entropies for this field.
    pub(in crate::nn) fn head_options(&self) -> HeadOptions {
        let field = self.field_name();
        self.state.head_fields.borrow_mut().insert(field.to_owned());
        self.state.sizes.head_of(field)
    }

    /// Records an attention, for the FLOP count and for `recompute = attn`.
    pub(in crate::nn) fn note_attention(&self, sizes: AttentionSizes) {
        self.state.attentions.borrow_mut().push(sizes);
        self.state.attention_paths.borrow_mut().push(self.path.clone());
        let mut leads = self.state.attention_inputs.borrow_mut();
        match self.field_path().rsplit_once('.') {
            Some((model, _)) => {
                leads
                    .extend(self.field_names(model).iter().map(|field| format!("{model}.{field}")));
            }
            None => drop(leads.insert(self.field_path().to_owned())),
        }
    }

    /// Returns the paths of the attention fields within `path`, and of the fields declared before each in its model.
    pub(in crate::nn) fn attention_inputs(&self, path: &str) -> Vec<String> {
        let inside = format!("{path}.");
        let leads = self.state.attention_inputs.borrow();
        leads.iter().filter(|lead| lead.starts_with(&inside)).cloned().collect()
    }

    /// Returns the names of the fields of the model at `path` that have been built so far.
    pub(in crate::nn) fn field_names(&self, path: &str) -> Vec<String> {
        self.state.fields.borrow().get(path).cloned().unwrap_or_default()
    }

    /// Removes and returns the recomputation policy of this field; nested fields do not inherit it.
    pub(in crate::nn) fn take_policy(&mut self) -> Option<RecomputePolicy> {
        self.recompute.take()
    }

    /// Records that the override has found a field to recompute.
    pub(in crate::nn) fn note_recomputed(&self) {
        self.state.is_recomputed.set(true);
    }

    /// Returns true, and records the problem, if this field, `container` of `M`, is inside an `M` of another container.
    pub(in crate::nn) fn contains_itself<M: 'static>(&self, container: &str) -> bool {
        let contains_itself = self.elements.contains(&TypeId::of::<M>());
        if contains_itself {
            let layer = std::any::type_name::<M>();
            self.problem(format_args!(
                "is {container} of `{layer}` inside a `{layer}`: a model cannot contain itself; give the inner layers \
                 another type"
            ));
        }
        contains_itself
    }

    /// The path of this field.
    pub(in crate::nn) fn path(&self) -> &str {
        &self.path
    }

    fn child(&self, name: &str) -> Builder<'a> {
        self.at_path(self.join(name))
    }

    /// Returns the builder of what is at `path`, which is inside this field.
    fn at_path(&self, path: String) -> Builder<'a> {
        let mut params = self.params.clone();
        params.is_frozen &= !self.is_trained_beside_adapters(&path);
        Builder {
            state: self.state,
            path,
            units: Rc::clone(&self.units),
            tie: self.tie.clone(),
            recompute: None,
            elements: self.elements.clone(),
            layer: self.layer.clone(),
            own_size: None,
            params,
        }
    }

    /// The path of the nested field `name`.
    pub(in crate::nn) fn join(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    pub(in crate::nn) fn size_of(&self, dim: &DimInfo) -> usize {
        let own = self.own_size.filter(|(key, _)| *key == (dim.key)()).map(|(_, size)| size);
        match own.or_else(|| self.state.sizes.dim_size(dim)) {
            Some(0) => {
                self.problem(format_args!("{} = 0, but a dim has at least one element", dim.name));
                1
            }
            Some(size) => size,
            None => {
                self.problem(format_args!(
                    "{0} has no size: set it by `Sizes::with({0}, ..)`",
                    dim.name
                ));
                1
            }
        }
    }

    fn extent(&self, dim: &DimInfo, shards: ShardSizes) -> Extent {
        let size = self.size_of(dim);
        let (axes, degree) = (dim.split, self.state.rank.degree_of(dim.split));
        if shards == ShardSizes::Even && !size.is_multiple_of(degree) {
            self.problem(format_args!(
                "{} = {size} is not divisible by {axes} = {degree}",
                dim.name
            ));
        } else if size < degree {
            self.problem(format_args!("{} = {size} is less than {axes} = {degree}", dim.name));
        }
        self.state.rank.local_extent(dim, size)
    }
}
