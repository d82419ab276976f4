//! Parameters: named blocks of a unit's flat buffers.

use std::cell::{Cell, Ref, RefCell};
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

use crate::backend::{Buffer, Category, DType, ViewMut};
use crate::comm::{Pending, ReduceOp, Site};
use crate::layout::{AxisSet, DimInfo};

use super::rank::fail;
use super::value::{Extent, Value, block_index, local_len};
use super::{Rank, region};

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
            start: unit.len.get(),
            varies,
            contracted,
            gradient_axes: Cell::default(),
            has_gradient: Cell::new(false),
            extents,
        }));
        // Every parameter begins on a cache line of its own.
        unit.len.set((unit.len.get() + param.len()).next_multiple_of(16));
        unit.params.borrow_mut().push(param.clone());
        param
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
        let mut value = Value::ready(
            rank,
            self.extents().to_vec(),
            rank.meter().copy_of(&self.data(), Category::Parameters),
            None,
        );
        for (dim, info) in self.dims().iter().enumerate() {
            if let Some(axis) = info.split {
                value = region::gather(&value, axis, dim, self.site());
            }
        }
        value.compute().data.typed().to_vec()
    }

    /// Whether weight decay applies: parameters of two dims or more.
    pub fn decays(&self) -> bool {
        self.0.extents.len() > 1
    }

    /// Where it lies in its unit's buffers.
    pub(crate) fn range(&self) -> Range<usize> {
        self.0.start..self.0.start + self.len()
    }

    /// Its elements on this rank, row-major.
    pub fn data(&self) -> Ref<'_, [f32]> {
        Ref::map(self.0.unit.data.borrow(), |data| &data.typed::<f32>()[self.range()])
    }

    /// Lets `write` change its elements.
    pub(crate) fn with_data(&self, write: impl FnOnce(&mut [f32])) {
        write(&mut self.0.unit.data.borrow_mut().typed_mut::<f32>()[self.range()]);
    }

    /// Its reduced or accumulated gradient on this rank, row-major; zeros where nothing contributed.
    pub(crate) fn gradient(&self) -> Ref<'_, [f32]> {
        Ref::map(self.0.unit.gradient.borrow(), |gradient| &gradient.values()[self.range()])
    }

    pub(crate) fn begin_use(&self, axes: AxisSet) {
        self.0.gradient_axes.set(self.gradient_axes().or(axes));
        self.0.unit.uses.set(self.0.unit.uses.get() + 1);
    }

    pub(crate) fn with_gradient(&self, write: impl FnOnce(ViewMut<'_>, bool)) {
        let mut gradient = self.0.unit.gradient.borrow_mut();
        write(
            ViewMut::from(&mut gradient.values_mut()[self.range()]),
            self.0.has_gradient.replace(true),
        );
    }

    pub(crate) fn end_use(&self, rank: &Rank) {
        let uses = self.0.unit.uses.get() - 1;
        self.0.unit.uses.set(uses);
        if uses == 0 {
            self.0.unit.start_reduction(rank);
        }
    }

    fn initialise(&self, rank: &Rank) {
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

/// Parameters that are reduced, and later gathered, together: one flat buffer of each kind.
pub struct Unit {
    name: String,
    len: Cell<usize>,
    params: RefCell<Vec<ParamRef>>,
    data: RefCell<Buffer>,
    gradient: RefCell<Gradient>,
    /// Uses recorded forward and not yet undone: at zero, the gradient is complete.
    uses: Cell<usize>,
    /// Whether the sum over ranks was started.
    reduction_started: Cell<bool>,
}

enum Gradient {
    Here(Buffer),
    Reducing(Pending),
    Lost,
}

impl Gradient {
    fn values(&self) -> &[f32] {
        match self {
            Gradient::Here(buffer) => buffer.typed(),
            Gradient::Reducing(_) | Gradient::Lost => {
                unreachable!("gradients are read after their reduction")
            }
        }
    }

    fn values_mut(&mut self) -> &mut [f32] {
        match self {
            Gradient::Here(buffer) => buffer.typed_mut(),
            Gradient::Reducing(_) | Gradient::Lost => {
                unreachable!("a complete gradient gets no further share")
            }
        }
    }
}

impl Unit {
    pub(crate) fn new(rank: &Rank, name: &str) -> Rc<Unit> {
        Rc::new(Unit {
            name: name.to_owned(),
            len: Cell::new(0),
            params: RefCell::default(),
            data: RefCell::new(rank.meter().zeros(DType::F32, 0, Category::Parameters)),
            gradient: RefCell::new(Gradient::Lost),
            uses: Cell::new(0),
            reduction_started: Cell::new(false),
        })
    }

    /// Path of the field whose parameters these are.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Elements of each flat buffer, alignment gaps included.
    pub fn len(&self) -> usize {
        self.len.get()
    }

    /// Whether the unit has no parameters.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its parameters, in the order of the buffers.
    pub fn params(&self) -> Ref<'_, [ParamRef]> {
        Ref::map(self.params.borrow(), Vec::as_slice)
    }

    /// Makes the buffers, and every parameter's first value.
    pub(crate) fn allocate(&self, rank: &Rank) {
        *self.data.borrow_mut() = rank.meter().zeros(DType::F32, self.len(), Category::Parameters);
        *self.gradient.borrow_mut() =
            Gradient::Here(rank.meter().zeros(DType::F32, self.len(), Category::Gradients));
        for param in self.params().iter() {
            param.initialise(rank);
        }
    }

    /// Lets `visit` change a run of the parameters' buffer, given the same run of the gradient's.
    pub(crate) fn with_data_and_gradient(
        &self,
        range: Range<usize>,
        visit: impl FnOnce(&mut [f32], &[f32]),
    ) {
        let gradient = self.gradient.borrow();
        visit(
            &mut self.data.borrow_mut().typed_mut::<f32>()[range.clone()],
            &gradient.values()[range],
        );
    }

    /// Begins a new gradient: nothing contributed yet.
    pub(crate) fn begin_gradient(&self) {
        for param in self.params().iter() {
            param.0.has_gradient.set(false);
        }
        self.reduction_started.set(false);
    }

    /// Starts summing the gradient over the ranks, in the background; it is complete on this rank.
    pub(crate) fn start_reduction(&self, rank: &Rank) {
        self.uses.set(0);
        if self.is_empty() || self.reduction_started.replace(true) {
            return;
        }
        let mut gradient = self.gradient.borrow_mut();
        for param in self.params().iter().filter(|param| !param.0.has_gradient.replace(true)) {
            gradient.values_mut()[param.range()].fill(0.0);
        }
        self.reduce_over_model_axes(rank, gradient.values_mut());
        let group = rank.group(AxisSet::DATA);
        if group.size() > 1
            && let Gradient::Here(buffer) = std::mem::replace(&mut *gradient, Gradient::Lost)
        {
            *gradient =
                Gradient::Reducing(group.start_all_reduce(&self.site(), ReduceOp::Sum, buffer));
        }
    }

    /// Sums the gradients that are partial over further axes, as those of norms in a sequence-parallel stream are:
    /// small, and so taken together.
    fn reduce_over_model_axes(&self, rank: &Rank, gradient: &mut [f32]) {
        let params = self.params();
        let sets: BTreeSet<AxisSet> = params
            .iter()
            .map(|param| param.gradient_axes().minus(AxisSet::DATA))
            .filter(|axes| rank.degree_of(*axes) > 1)
            .collect();
        for axes in sets {
            let ranges: Vec<Range<usize>> = params
                .iter()
                .filter(|param| param.gradient_axes().minus(AxisSet::DATA) == axes)
                .map(ParamRef::range)
                .collect();
            let mut staging: Vec<f32> =
                ranges.iter().flat_map(|range| gradient[range.clone()].iter().copied()).collect();
            rank.all_reduce(axes, &self.site(), ReduceOp::Sum, &mut staging);
            let mut rest = staging.as_slice();
            for range in ranges {
                let (head, tail) = rest.split_at(range.len());
                gradient[range].copy_from_slice(head);
                rest = tail;
            }
        }
    }

    /// Waits until the gradient is the sum over all ranks.
    pub(crate) fn finish_reduction(&self) {
        let mut gradient = self.gradient.borrow_mut();
        *gradient = match std::mem::replace(&mut *gradient, Gradient::Lost) {
            Gradient::Reducing(pending) => {
                Gradient::Here(pending.wait().unwrap_or_else(|error| fail(error)))
            }
            settled => settled,
        };
    }

    fn site(&self) -> Site {
        Site::new(format!("{} (gradient)", self.name))
    }
}
