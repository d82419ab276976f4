//! Declaring a model's parameters and checking its sizes, before memory is allocated.

use std::any::{TypeId, type_name};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::Location;
use std::rc::Rc;

use crate::tensor::{ParamRef, Rank, Unit};

use super::super::{ContextStyle, HeadOptions, RecomputeOverride, Sizes};
use super::built::{ChosenExperts, allocate_units};
use super::field_init::FieldInit;
use super::field_settings::{AdapterFields, UsedSettings, is_index};
use super::{AttentionSizes, BuildError, Builder, Built};

/// A type that can be a field of a model: it builds itself from the model's sizes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a field of a model",
    label = "not a layer, a parameter or a model",
    note = "annotate your own struct with `#[model]`, or implement `Build` for your own layer",
    note = "several layers of one type are a `Stack<Layer>`, a `Vec<Layer>` or an array, and a layer that only some \
            models have is an `Option<Layer>`; a number is a constant of the program, or read from the `Sizes` by a \
            layer of your own"
)]
pub trait Build: Sized {
    /// Declares the parameters and builds the value.
    fn build(builder: &mut Builder<'_>) -> Self;
}

/// Builds `M` on `rank` with `sizes`: declares every parameter, checks every size, then allocates and initializes.
///
/// # Errors
/// All problems of the model together: dims without a size, dims not divisible by the degree of the axis they are split
/// over, incompatible numbers of heads.
#[track_caller]
pub fn build<M: Build>(rank: &Rank, sizes: &Sizes) -> Result<Built<M>, BuildError> {
    let mut built = declare_again::<M>(rank, sizes)?;
    built.allocate_model(rank, sizes);
    Ok(built)
}

impl<M> Built<M> {
    /// Returns the text of every parameter, and of the fields that are tied to others.
    fn declaration(&self) -> Vec<String> {
        let params = self.params.iter().map(ParamRef::declaration);
        let tied = self.tied.iter().map(|(path, param)| format!("{path} tied to {}", param.path()));
        params.chain(tied).collect()
    }

    /// Checks that the model is declared as it was before.
    ///
    /// # Errors
    /// The first parameter that differs.
    fn check_declared_as(&self, before: &[String]) -> Result<(), BuildError> {
        let own = self.declaration();
        let len = own.len().max(before.len());
        let Some(index) = (0..len).find(|index| own.get(*index) != before.get(*index)) else {
            return Ok(());
        };
        let [before, own] = [before, &own].map(|list| {
            list.get(index).map_or_else(|| "nothing more".to_owned(), |text| format!("`{text}`"))
        });
        let problem = format!(
            "a model is declared several times, at first with {before} and then with {own}: `Build` depends on the \
             sizes and the field alone, not on a counter or other numbers of the program; the index of a layer is \
             `builder.layer_index()`, or a field `LayerIndex`"
        );
        Err(BuildError { problems: vec![problem] })
    }

    /// Allocates and initializes a declared model, as far as this rank owns it.
    #[track_caller]
    #[doc(hidden)]
    pub fn allocate_model(&mut self, rank: &Rank, sizes: &Sizes) {
        let name =
            "the configuration of a model (its sizes and settings, and the seed of the rank)";
        rank.declared_values().note_setting(name, Location::caller(), || {
            let params: Vec<String> = self.params.iter().map(ParamRef::declaration).collect();
            format!("{} {} {params:?}", rank.seed(), sizes.text())
        });
        allocate_units(&mut self.units, rank);
    }
}

/// Declares every parameter of `M` and checks every size, without allocating memory.
///
/// # Errors
/// As [`build`].
pub fn declare<M: Build>(rank: &Rank, sizes: &Sizes) -> Result<Built<M>, BuildError> {
    let mut model = None;
    let built = declare_with(rank, sizes, &mut |builder| model = Some(M::build(builder)))?;
    Ok(built.with_model(model.expect("the model is built once")))
}

/// The declarations of models on a rank that are still to be built, by type and sizes.
#[derive(Default)]
struct FirstDeclarations(RefCell<BTreeMap<(&'static str, String), Vec<String>>>);

/// Declares a model that is built later, by [`declare_again`].
///
/// # Errors
/// As [`build`].
pub fn declare_first<M: Build>(rank: &Rank, sizes: &Sizes) -> Result<Built<M>, BuildError> {
    let built = declare(rank, sizes)?;
    let mut first = rank.session_state::<FirstDeclarations>().0.borrow_mut();
    first.insert((type_name::<M>(), sizes.text()), built.declaration());
    Ok(built)
}

/// Declares a model for the second time, and compares both. The plan of pipeline stages needs a declaration of its own;
/// so that a counter has the same numbers on every mesh, there are two on all of them.
///
/// # Errors
/// As [`build`], and a declaration that differs from the first one.
pub fn declare_again<M: Build>(rank: &Rank, sizes: &Sizes) -> Result<Built<M>, BuildError> {
    let key = (type_name::<M>(), sizes.text());
    let known = rank.session_state::<FirstDeclarations>().0.borrow_mut().remove(&key);
    let first = match known {
        Some(first) => first,
        None => declare::<M>(rank, sizes)?.declaration(),
    };
    let built = declare(rank, sizes)?;
    built.check_declared_as(&first)?;
    Ok(built)
}

/// Declares what `build` declares. By reference, so that this is compiled once and not for each model.
fn declare_with(
    rank: &Rank,
    sizes: &Sizes,
    build: &mut dyn FnMut(&mut Builder<'_>),
) -> Result<Built<()>, BuildError> {
    let state = BuildState {
        rank,
        sizes,
        units: RefCell::default(),
        params: RefCell::default(),
        fields: RefCell::default(),
        tied: RefCell::default(),
        attentions: RefCell::default(),
        attention_paths: RefCell::default(),
        matmuls: RefCell::default(),
        chosen: RefCell::default(),
        attention_inputs: RefCell::default(),
        attention_fields: RefCell::default(),
        head_fields: RefCell::default(),
        styled_attentions: RefCell::default(),
        declares_recompute: Cell::new(false),
        is_recomputed: Cell::new(false),
        used_settings: RefCell::default(),
        adapter_fields: RefCell::default(),
        inits: RefCell::default(),
        shared: RefCell::default(),
        problems: RefCell::default(),
    };
    build(&mut Builder::new(&state));
    state.check_context_styles();
    state.check_inits();
    let unused = state.unused_override().into_iter().chain(state.unused_attention_options());
    let unused = unused.chain(state.unused_context_style()).chain(state.unused_field_settings());
    let unused = unused.chain(state.adapter_problems());
    let unused = unused.chain(state.unused_inits()).chain(state.unused_kinds());
    let unused = unused.chain(state.head_options_problems());
    let of_sizes: Vec<String> = unused.chain(state.numbers_out_of_range()).collect();
    let recomputes = state.declares_recompute.get();
    let BuildState {
        units,
        attentions,
        attention_paths,
        matmuls,
        chosen,
        problems,
        params,
        tied,
        ..
    } = state;
    let mut problems = problems.into_inner();
    problems.extend(of_sizes);
    if !problems.is_empty() {
        return Err(BuildError { problems: problems.into_iter().collect() });
    }
    let mut units = units.into_inner();
    units.retain(|unit| !unit.is_empty());
    let (attentions, params) = (attentions.into_inner(), params.into_inner());
    let (tied, attention_paths) = (tied.into_inner(), attention_paths.into_inner());
    let (matmuls, chosen) = (matmuls.into_inner(), chosen.into_inner());
    Ok(Built {
        model: (),
        units,
        attentions,
        recomputes,
        params,
        tied,
        attention_paths,
        matmuls,
        chosen,
    })
}

/// The state of building one model, which the builders of its fields share.
pub(super) struct BuildState<'a> {
    pub(super) rank: &'a Rank,
    pub(super) sizes: &'a Sizes,
    pub(super) units: RefCell<Vec<Rc<Unit>>>,
    /// Parameters in the order of declaration.
    pub(super) params: RefCell<Vec<ParamRef>>,
    /// Names of the fields built so far, by the path of their model.
    pub(super) fields: RefCell<BTreeMap<String, Vec<String>>>,
    /// Paths of tied parameters, with the parameters that they share.
    pub(super) tied: RefCell<Vec<(String, ParamRef)>>,
    pub(super) attentions: RefCell<Vec<AttentionSizes>>,
    /// Path of each attention.
    pub(super) attention_paths: RefCell<Vec<String>>,
    /// Paths of the tables that a matmul reads, with the field of the matmul.
    pub(super) matmuls: RefCell<BTreeSet<(String, String)>>,
    /// The fractions of the experts that tokens choose.
    pub(super) chosen: RefCell<ChosenExperts>,
    /// Paths of the attentions, and of the fields declared before them in the same model.
    pub(super) attention_inputs: RefCell<BTreeSet<String>>,
    /// Names of the fields that have read options of attention.
    pub(super) attention_fields: RefCell<BTreeSet<String>>,
    /// Names of the fields with heads and cross-entropies.
    pub(super) head_fields: RefCell<BTreeSet<String>>,
    /// The context-parallel attentions.
    pub(super) styled_attentions: RefCell<Vec<StyledAttention>>,
    /// True if an attribute of the model declares recomputation.
    pub(super) declares_recompute: Cell<bool>,
    /// True if the override has found a field to recompute.
    pub(super) is_recomputed: Cell<bool>,
    /// The settings of optional and repeated fields that have been used.
    pub(super) used_settings: RefCell<UsedSettings>,
    /// The linear layers, and the adapters among them.
    pub(super) adapter_fields: RefCell<AdapterFields>,
    /// Initial values of the attributes of fields.
    pub(super) inits: RefCell<Vec<Rc<FieldInit>>>,
    /// The first field of those that the layers of a stack share, by the path of the stack and that in a layer.
    pub(super) shared: RefCell<BTreeMap<(String, String), String>>,
    /// A sorted set, as all layers of a stack have the same problems.
    pub(super) problems: RefCell<BTreeSet<String>>,
}

/// An attention with a style of context parallelism.
pub(super) struct StyledAttention {
    pub(super) path: String,
    pub(super) style: ContextStyle,
    /// Query heads and key-value heads: the dim, and its size.
    pub(super) heads: [(TypeId, usize); 2],
}

impl BuildState<'_> {
    /// Records a problem of the field at `path`; `message` continues the path. Layers of a stack have one name.
    pub(super) fn problem(&self, path: &str, message: std::fmt::Arguments<'_>) {
        let starred = |part| if is_index(part) { "*" } else { part };
        let path: Vec<&str> = path.split('.').map(starred).collect();
        self.problems.borrow_mut().insert(format!("`{}`: {message}", path.join(".")));
    }

    /// Returns the parameter at `path`, if it has been declared.
    pub(super) fn declared_param(&self, path: &str) -> Option<ParamRef> {
        self.params.borrow().iter().find(|param| param.path() == path).cloned()
    }

    /// Returns the parameter of the layer at `path`, if the layer has one alone.
    pub(super) fn only_param_of(&self, path: &str) -> Option<ParamRef> {
        let params = self.params.borrow();
        let is_inner = |param: &&ParamRef| {
            param.path().strip_prefix(path).is_some_and(|rest| rest.starts_with('.'))
        };
        let mut inner = params.iter().filter(is_inner);
        let param = inner.next().filter(|_| inner.next().is_none());
        param.cloned()
    }

    /// Returns the problems of numbers that no model can be built with.
    fn numbers_out_of_range(&self) -> impl Iterator<Item = String> {
        let Sizes { norm_eps, init_std, .. } = *self.sizes;
        [("norm_eps", norm_eps), ("init_std", init_std)].into_iter().filter_map(|(name, number)| {
            let is_valid = number.is_finite() && number >= 0.0;
            (!is_valid)
                .then(|| format!("`{name}` is {number}, and must be a finite number of at least 0"))
        })
    }

    /// Returns the problem of an override that applies to nothing in the model.
    fn unused_override(&self) -> Option<String> {
        let wanted = self.sizes.recompute.filter(|wanted| *wanted != RecomputeOverride::Off)?;
        let missing = match wanted {
            RecomputeOverride::Attention => "`Attention` inside a `Stack`",
            _ => "`Stack`",
        };
        let problem =
            format!("`recompute = {wanted}` applies to nothing: the model has no {missing}");
        (!self.is_recomputed.get()).then_some(problem)
    }

    /// Returns the problem of a style of context parallelism that no attention uses.
    fn unused_context_style(&self) -> Option<String> {
        let style = self.sizes.context.filter(|_| self.styled_attentions.borrow().is_empty())?;
        Some(format!(
            "the style `{style}` of context parallelism (`--cp`) applies to nothing: no attention of the model has \
             `#[sharded(cp = ..)]`"
        ))
    }

    /// Returns the problems of options of heads: out of range, or for heads that the model does not have.
    fn head_options_problems(&self) -> Vec<String> {
        let used = self.head_fields.borrow();
        let problem = |(field, options): (&String, &HeadOptions)| {
            let is_missing = !used.contains(field);
            let unused = is_missing
                .then(|| "apply to nothing: no head is in a field of this name".to_owned());
            let problem = unused
                .or_else(|| options.problem().map(|problem| format!("are refused: {problem}")))?;
            Some(format!("the head options of `{field}` {problem}"))
        };
        let of_all =
            self.sizes.head.problem().map(|problem| format!("the head options: {problem}"));
        of_all.into_iter().chain(self.sizes.head_fields().filter_map(problem)).collect()
    }

    /// Returns the problems of options for attentions that the model does not have.
    fn unused_attention_options(&self) -> Vec<String> {
        let used = self.attention_fields.borrow();
        let unused = self.sizes.attention_fields().filter(|field| !used.contains(*field));
        let problem = |field| {
            format!(
                "the attention options of `{field}` apply to nothing: no attention is in a field of this name"
            )
        };
        unused.map(problem).collect()
    }
}
