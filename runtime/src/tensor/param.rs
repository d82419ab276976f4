//! Parameters: named blocks of a unit's flat buffers.

use std::cell::{Cell, Ref};
use std::ops::Range;
use std::rc::{Rc, Weak};

use crate::backend::{Category, ViewMut};
use crate::comm::Site;
use crate::layout::{AxisSet, DimInfo};

use super::value::{Extent, Value, block_index, local_len};
use super::{Rank, Unit, region};

/// How a parameter begins. Every element is a function of the seed, the parameter's path and the element's place in
/// the global tensor, so every mesh starts from the same model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Init {
    /// All zeros: biases.
    Zeros,
    /// All ones: gains.
    Ones,
    /// Normally distributed around zero with this standard deviation.
    Normal(f32),
}

/// A parameter's place in the model, and its block of the unit's buffers.
#[derive(Clone)]
pub struct ParamRef(Rc<Entry>);

/// A parameter as its unit knows it: the model owns its parameters, which own their unit.
pub(crate) struct WeakParam(Weak<Entry>);

impl WeakParam {
    /// The parameter, while the model is there.
    pub(crate) fn upgrade(&self) -> Option<ParamRef> {
        self.0.upgrade().map(ParamRef)
    }
}

struct Entry {
    site: Site,
    infos: &'static [DimInfo],
    extents: Vec<Extent>,
    init: Init,
    unit: Rc<Unit>,
    start: usize,
    varies: AxisSet,
    contracted: usize,
    gradient_axes: Cell<AxisSet>,
    has_gradient: Cell<bool>,
}

impl ParamRef {
    pub(crate) fn new(
        path: &str,
        infos: &'static [DimInfo],
        contracted: usize,
        extents: Vec<Extent>,
        init: Init,
        unit: &Rc<Unit>,
    ) -> ParamRef {
        let varies = infos.iter().fold(AxisSet::NONE, |axes, info| axes.or(info.axes()));
        let param = ParamRef(Rc::new(Entry {
            site: Site::new(path),
            infos,
            init,
            unit: Rc::clone(unit),
            start: unit.len(),
            varies,
            contracted,
            gradient_axes: Cell::default(),
            has_gradient: Cell::new(false),
            extents,
        }));
        unit.push(&param);
        param
    }

    pub(crate) fn downgrade(&self) -> WeakParam {
        WeakParam(Rc::downgrade(&self.0))
    }

    /// Path of the fields that lead to the parameter: `blocks.3.mlp.down.weight`.
    pub fn path(&self) -> &str {
        self.0.site.field()
    }

    /// The parameter as the origin of a collective.
    pub fn site(&self) -> &Site {
        &self.0.site
    }

    /// Each dim, as declared.
    pub fn dims(&self) -> &'static [DimInfo] {
        self.0.infos
    }

    /// Size and place of each dim on this rank.
    pub fn extents(&self) -> &[Extent] {
        &self.0.extents
    }

    /// Number of elements on this rank.
    pub fn len(&self) -> usize {
        local_len(&self.0.extents)
    }

    /// Whether this rank holds no element of it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of elements of the global parameter.
    pub fn global_len(&self) -> usize {
        self.0.extents.iter().map(|extent| extent.global).product()
    }

    /// The axes over which it is split.
    pub fn varies(&self) -> AxisSet {
        self.0.varies
    }

    /// The axes over which its gradient is summed, known once it has been used.
    pub fn gradient_axes(&self) -> AxisSet {
        self.0.gradient_axes.get()
    }

    /// Number of leading dims that a weight reads, the others being those it writes.
    pub fn contracted(&self) -> usize {
        self.0.contracted
    }

    /// All of the parameter, row-major, put together from the ranks that hold its parts; all of them must call it.
    pub fn gather(&self, rank: &Rank) -> Vec<f32> {
        self.gather_block(rank, &self.data())
    }

    /// The global tensor of which `block` is this rank's part, split as the parameter is.
    pub(crate) fn gather_block(&self, rank: &Rank, block: &[f32]) -> Vec<f32> {
        let data = rank.meter().copy_of(block, Category::Workspace);
        let mut value = Value::ready(rank, self.extents().to_vec(), data, None);
        for (dim, info) in self.dims().iter().enumerate() {
            if let Some(axis) = info.split {
                value = region::gather(&value, axis, dim, self.site());
            }
        }
        value.compute().data.typed().to_vec()
    }

    /// Whether weight decay applies: parameters of two dims or more, where a bias over a pair such as
    /// `(Heads, HeadDim)` is a vector.
    pub fn decays(&self) -> bool {
        self.0.extents.len() > 1 && self.0.contracted > 0
    }

    /// Makes sure that the trailing dims of a tensor, which have the right names by its type, have the sizes that the
    /// parameter was built with.
    pub(crate) fn check_trailing(&self, tensor: &[Extent]) {
        let trailing = &tensor[tensor.len() - self.extents().len()..];
        assert!(trailing == self.extents(), "{}", self.misfit(trailing));
    }

    fn misfit(&self, tensor: &[Extent]) -> String {
        let sizes = |extents: &[Extent]| {
            let named = self.dims().iter().zip(extents);
            named
                .map(|(dim, extent)| format!("{} = {}", dim.name, extent.global))
                .collect::<Vec<_>>()
                .join(", ")
        };
        format!(
            "`{}` was built with {}, and is used on a tensor with {}",
            self.path(),
            sizes(self.extents()),
            sizes(tensor)
        )
    }

    /// Where it lies in its unit's buffers.
    pub(crate) fn range(&self) -> Range<usize> {
        self.0.start..self.0.start + self.len()
    }

    /// Its elements on this rank, row-major.
    pub fn data(&self) -> Ref<'_, [f32]> {
        Ref::map(self.0.unit.data(), |data| &data[self.range()])
    }

    /// Lets `write` change its elements.
    pub fn with_data(&self, write: impl FnOnce(&mut [f32])) {
        write(&mut self.0.unit.data_mut()[self.range()]);
    }

    /// Its reduced or accumulated gradient on this rank, row-major; zeros where nothing contributed.
    pub(crate) fn gradient(&self) -> Ref<'_, [f32]> {
        Ref::map(self.0.unit.gradient(), |gradient| &gradient[self.range()])
    }

    pub(crate) fn begin_use(&self, axes: AxisSet) {
        self.0.gradient_axes.set(self.gradient_axes().or(axes));
        self.0.unit.begin_use();
    }

    pub(crate) fn with_gradient(&self, write: impl FnOnce(ViewMut<'_>, bool)) {
        let mut gradient = self.0.unit.gradient_mut();
        write(ViewMut::from(&mut gradient[self.range()]), self.0.has_gradient.replace(true));
    }

    pub(crate) fn end_use(&self, rank: &Rank) {
        self.0.unit.end_use(rank);
    }

    /// Forgets that anything contributed to the gradient.
    pub(crate) fn begin_gradient(&self) {
        self.0.has_gradient.set(false);
    }

    /// Whether nothing has contributed to the gradient so far; from then on something has.
    pub(crate) fn take_missing_gradient(&self) -> bool {
        !self.0.has_gradient.replace(true)
    }

    pub(crate) fn initialise(&self, rank: &Rank) {
        self.with_data(|data| match self.0.init {
            Init::Zeros => data.fill(0.0),
            Init::Ones => data.fill(1.0),
            Init::Normal(std) => {
                let key = crate::random::key(rank.seed(), self.path());
                rank.backend().normal(key, std, &block_index(&self.0.extents), data.into());
            }
        });
    }
}

impl std::fmt::Debug for ParamRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ParamRef({})", self.path())
    }
}
