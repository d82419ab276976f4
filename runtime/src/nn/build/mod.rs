//! Building a model on a rank: sizes are checked for the whole model before anything is allocated.

mod builder;
mod built;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::Location;
use std::rc::Rc;

use crate::tensor::{ParamRef, Rank, Unit};

use super::{RecomputeOverride, Sizes};

pub use builder::{Builder, Parts};
pub use built::{BuildError, Built};

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
#[track_caller]
pub fn build<M: Build>(rank: &Rank, sizes: &Sizes) -> Result<Built<M>, BuildError> {
    let built = declare(rank, sizes)?;
    let name = "what a model is built of (its sizes and settings, and the seed of the rank)";
    rank.declared_values().note_setting(name, Location::caller(), || {
        let Sizes { norm_eps, rope_theta, init_std, dropout, .. } = sizes;
        let params: Vec<String> = built.params.iter().map(ParamRef::declaration).collect();
        format!("{} {norm_eps} {rope_theta} {init_std} {dropout} {params:?}", rank.seed())
    });
    for unit in &built.units {
        unit.allocate();
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
        fields: RefCell::default(),
        attentions: RefCell::default(),
        products: RefCell::default(),
        leads_to_attention: RefCell::default(),
        declares_recompute: Cell::new(false),
        is_recomputed: Cell::new(false),
        problems: RefCell::default(),
    };
    let root = Unit::new(rank, "model");
    state.units.borrow_mut().push(Rc::clone(&root));
    let model = M::build(&mut Builder::new(&state, root));
    let unmet = state.unmet_override();
    let recomputes = state.declares_recompute.get();
    let State { units, attentions, products, problems, params, .. } = state;
    let mut problems = problems.into_inner();
    problems.extend(unmet);
    if !problems.is_empty() {
        return Err(BuildError { problems: problems.into_iter().collect() });
    }
    let mut units = units.into_inner();
    units.retain(|unit| !unit.is_empty());
    let (attentions, params) = (attentions.into_inner(), params.into_inner());
    let products = products.into_inner();
    Ok(Built { model, units, attentions, recomputes, params, products })
}

struct State<'a> {
    rank: &'a Rank,
    sizes: &'a Sizes,
    units: RefCell<Vec<Rc<Unit>>>,
    /// In the order in which they were declared.
    params: RefCell<Vec<ParamRef>>,
    /// The names of the fields that were begun, by the path of their model.
    fields: RefCell<BTreeMap<String, Vec<String>>>,
    attentions: RefCell<Vec<(usize, usize)>>,
    /// Paths of the tables that products are computed with.
    products: RefCell<BTreeSet<String>>,
    /// Paths of the attentions, and of the fields declared before them in the same model.
    leads_to_attention: RefCell<BTreeSet<String>>,
    /// Whether an attribute says that something is recomputed.
    declares_recompute: Cell<bool>,
    /// Whether an override has found something to recompute.
    is_recomputed: Cell<bool>,
    /// Ordered and without repetition: the layers of a stack have the same ones.
    problems: RefCell<BTreeSet<String>>,
}

impl State<'_> {
    /// The parameter at `path`, if it has been declared.
    fn declared(&self, path: &str) -> Option<ParamRef> {
        self.params.borrow().iter().find(|param| param.path() == path).cloned()
    }

    /// What is wrong with an override that recomputes nothing.
    fn unmet_override(&self) -> Option<String> {
        let wanted = self.sizes.recompute.filter(|wanted| *wanted != RecomputeOverride::Off)?;
        let missing = match wanted {
            RecomputeOverride::Attention => "`Attention` inside of a `Stack`",
            _ => "`Stack`",
        };
        let problem = format!("`recompute = {wanted}` finds nothing: the model has no {missing}");
        (!self.is_recomputed.get()).then_some(problem)
    }
}
