//! The result of building a model, or the problems that prevent it.

use std::any::TypeId;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::tensor::{ParamRef, Rank, Unit};

/// A built model with its parameters and properties.
pub struct Built<M> {
    /// The model.
    pub model: M,
    /// The FSDP units that hold its parameters: of a model that is built as pipeline stages, those that this rank
    /// [owns](Unit::is_owned).
    pub units: Vec<Rc<Unit>>,
    /// Sizes of every attention, for the FLOP count.
    pub attentions: Vec<AttentionSizes>,
    /// True if an attribute of the model declares recomputation.
    pub recomputes: bool,
    pub(super) params: Vec<ParamRef>,
    /// Paths of tied parameters, with the parameters that they share.
    pub(super) tied: Vec<(String, ParamRef)>,
    /// Path of each attention.
    pub(super) attention_paths: Vec<String>,
    /// Paths of the tables that a matmul reads, with the field of the matmul.
    pub(super) matmuls: BTreeSet<(String, String)>,
    pub(super) chosen: ChosenExperts,
}

/// The fraction of the experts that a token chooses, by the dim of the experts.
pub(super) type ChosenExperts = BTreeMap<TypeId, f64>;

impl<M> Built<M> {
    /// All parameters of the model, in the order of declaration. Of one that is built as pipeline stages, this rank
    /// [owns](ParamRef::is_owned) some.
    pub fn params(&self) -> Vec<ParamRef> {
        self.params.clone()
    }

    /// Returns the FSDP units with the parameters of the field at `path`, as far as this rank owns them: for an
    /// optimizer of some fields of a model. The position of a unit in [`units`](Self::units) is another one in each
    /// pipeline stage.
    ///
    /// # Panics
    /// If the model has no parameter there, or if one of the units has parameters of other fields too.
    #[track_caller]
    pub fn units_of(&self, path: &str) -> Vec<Rc<Unit>> {
        let is_within = |of: &str| {
            of.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let uses = self.param_uses().filter(|(of, _)| is_within(of));
        let wanted: Vec<&ParamRef> = uses.map(|(_, param)| param).collect();
        assert!(!wanted.is_empty(), "the model has no parameter at `{path}`");
        let has_wanted =
            |unit: &&Rc<Unit>| wanted.iter().any(|param| Rc::ptr_eq(param.unit(), unit));
        let units: Vec<Rc<Unit>> = self.units.iter().filter(has_wanted).cloned().collect();
        for unit in &units {
            // The name selects the unit.
            let name = unit.name();
            let is_wanted = |own: &ParamRef| wanted.iter().any(|param| param.path() == own.path());
            if let Some(other) = unit.params().iter().find(|param| !is_wanted(param)) {
                panic!(
                    "the unit `{name}` of `{path}` has `{}` too: select a field of the model or a layer of a stack, or \
                     put `#[sharded(fsdp)]` on the field, which makes a unit of it",
                    other.path()
                );
            }
        }
        units
    }

    /// Returns the path of every use of a parameter: that of its declaration, and the paths of the parameters tied to
    /// it.
    #[doc(hidden)]
    pub fn param_uses(&self) -> impl Iterator<Item = (&str, &ParamRef)> {
        let tied = self.tied.iter().map(|(path, param)| (path.as_str(), param));
        self.params.iter().map(|param| (param.path(), param)).chain(tied)
    }

    /// Returns the model FLOPs of training on one token in sequences of `seq`, of the fields whose paths are `counted`:
    /// `6 N + 12 L H Q T` with `N` parameters, `L` layers of `H` heads of `Q` elements, and sequences of `T` (Chowdhery
    /// et al., "PaLM", 2022, appendix B). Attention counts as if every token attended to all others, which is twice the
    /// work of causal attention, or to all of its [window](AttentionSizes::window); keys of cross attention count as
    /// many as `seq`.
    ///
    /// A [table](ParamRef::is_table) counts where a matmul reads it, as that of the language-model head does. So tables
    /// that are only looked up are left out of `N`: that of positions, and the token embedding of a model whose head
    /// has a weight of its own. Of the weights of experts count those that a token chooses. Of frozen parameters no
    /// gradient is computed, so they count `4 N`.
    #[doc(hidden)]
    pub fn flops_per_token(&self, seq: usize, counted: impl Fn(&str) -> bool) -> f64 {
        let has_matmul = |table: &ParamRef| {
            let mut matmuls = self.matmuls.iter();
            matmuls.any(|(path, field)| path == table.path() && counted(field))
        };
        let is_counted = |param: &&ParamRef| {
            if param.is_table() { has_matmul(param) } else { counted(param.path()) }
        };
        let used_elements = |param: &ParamRef| self.used_elements(param);
        let counted_params = || self.params.iter().filter(is_counted);
        let elements: f64 = counted_params().map(used_elements).sum();
        let frozen: f64 =
            counted_params().filter(|param| param.is_frozen()).map(used_elements).sum();
        let attentions = self.attention_paths.iter().zip(&self.attentions);
        let attentions = attentions.filter(|(path, _)| counted(path));
        let attention: usize = attentions.map(|(_, sizes)| sizes.products_per_query(seq)).sum();
        6.0 * elements - 2.0 * frozen + 6.0 * attention as f64
    }

    /// Returns the model FLOPs of training on one row, as [`flops_per_token`](Self::flops_per_token) counts them, of a
    /// model whose parts have different numbers of positions: an encoder and a decoder. `positions` returns for the
    /// path of a parameter, or of the matmul that reads a table, how many positions of a row go through it; and for
    /// that of an attention the queries and the keys.
    pub fn flops_per_row(&self, positions: impl Fn(&str) -> [usize; 2]) -> f64 {
        let queries = |path: &str| positions(path)[0] as f64;
        let positions_of = |param: &ParamRef| -> f64 {
            if !param.is_table() {
                return queries(param.path());
            }
            let matmuls = self.matmuls.iter().filter(|(path, _)| path == param.path());
            matmuls.map(|(_, field)| queries(field)).sum()
        };
        let of_param = |param: &ParamRef| {
            let passes = if param.is_frozen() { 4.0 } else { 6.0 };
            passes * self.used_elements(param) * positions_of(param)
        };
        let params: f64 = self.params.iter().map(of_param).sum();
        let of_attention = |(path, sizes): (&String, &AttentionSizes)| {
            let [queries, keys] = positions(path);
            6.0 * queries as f64 * sizes.products_per_query(keys) as f64
        };
        params + self.attention_paths.iter().zip(&self.attentions).map(of_attention).sum::<f64>()
    }

    /// Returns the elements of a parameter that each token uses: of experts, those that it chooses.
    fn used_elements(&self, param: &ParamRef) -> f64 {
        let experts = param.dims().first().filter(|_| param.stacked() > 0);
        let chosen = experts.and_then(|experts| self.chosen.get(&(experts.key)()));
        param.global_len() as f64 * chosen.unwrap_or(&1.0)
    }

    /// Number of elements of all global parameters.
    pub fn global_len(&self) -> usize {
        self.params.iter().map(ParamRef::global_len).sum()
    }
}

impl Built<()> {
    pub(super) fn with_model<M>(self, model: M) -> Built<M> {
        Built {
            model,
            units: self.units,
            attentions: self.attentions,
            recomputes: self.recomputes,
            params: self.params,
            tied: self.tied,
            attention_paths: self.attention_paths,
            matmuls: self.matmuls,
            chosen: self.chosen,
        }
    }
}

/// Allocates and initializes the units that this rank owns, and adds them to the rank's units; the others leave
/// `units`.
pub(super) fn allocate_units(units: &mut Vec<Rc<Unit>>, rank: &Rank) {
    let is_other = |unit: &mut Rc<Unit>| !unit.is_owned();
    let other: Vec<Rc<Unit>> = units.extract_if(.., is_other).collect();
    units.iter().for_each(|unit| unit.allocate());
    rank.add_units(units);
    rank.add_units_of_other_stages(&other);
}

/// Global sizes of an attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttentionSizes {
    /// Query heads.
    pub heads: usize,
    /// Elements of one head of queries and keys.
    pub head_dim: usize,
    /// Elements of one head of values.
    pub value_dim: usize,
    /// Positions that a query attends to at most, if fewer than all: with a sliding window of `w`, the last `w`, and
    /// the `w - 1` after them if not causal.
    pub window: Option<usize>,
    /// True if a query sees no key after it.
    pub is_causal: bool,
    /// Ranks of `cp` among which the positions of the queries are distributed: 1 if each rank has whole sequences, of
    /// all heads or of some.
    pub position_ranks: usize,
}

impl AttentionSizes {
    /// Returns the multiply-adds of one query in all heads: with each key, and with each value.
    fn products_per_query(&self, seq: usize) -> usize {
        let keys = self.window.map_or(seq, |window| window.min(seq));
        self.heads * (self.head_dim + self.value_dim) * keys
    }
}

/// The problems of a model that cannot be built with its sizes on this mesh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildError {
    /// One line per problem, beginning with the field.
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
