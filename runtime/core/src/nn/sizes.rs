//! Run-time sizes and settings of a model.

use std::any::TypeId;
use std::collections::{BTreeMap, HashMap};

use crate::layout::{Dim, DimInfo, Whole};
use crate::rotary::RopeParameters;
use crate::tensor::Init;
use meshwright_backend::{RopeLayout, RouterOptions};

use super::{
    AttentionOptions, ContextStyle, HeadOptions, Layers, LoraOptions, LoraRank, NormOptions,
    RecomputeOverride, RouterPenalties,
};

/// Global sizes of the dims that a model declares, and settings of its layers.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Sizes {
    dims: HashMap<TypeId, DimSize>,
    flags: BTreeMap<String, bool>,
    numbers: BTreeMap<String, f32>,
    /// Keys are names of fields, or ends of their paths.
    optional: BTreeMap<String, bool>,
    /// Rows of embeddings over a dim that get no gradient.
    padding: HashMap<TypeId, usize>,
    counts: BTreeMap<String, usize>,
    inits: BTreeMap<String, Init>,
    kinds: BTreeMap<String, Vec<String>>,
    /// True if the stacks have fewer layers than the model.
    is_truncated: bool,
    /// Epsilon of norms, added under the square root; [`with_norm`](Self::with_norm) sets it for single fields.
    pub norm_eps: f32,
    /// Added to the weights of RMSNorms, which begin at `1 - norm_offset`: 1 in Gemma. Weight decay then draws gains to
    /// the offset, and a model with a LayerNorm sets 0 for its field by [`with_norm`](Self::with_norm).
    pub norm_offset: f32,
    norms: BTreeMap<String, NormOptions>,
    /// Base, rotated part and scaling of rotary embeddings; [`with_rope`](Self::with_rope) sets them for single fields.
    pub rope: RopeParameters,
    /// Rotary embeddings of the layers of a stack, instead of `rope`: layer `i` has entry `i % ropes.len()`, and `None`
    /// rotates nothing. Empty: `rope` in all layers.
    pub ropes: Vec<Option<RopeParameters>>,
    ropes_of_fields: BTreeMap<String, Option<RopeParameters>>,
    /// Elements that rotary embeddings rotate together.
    pub rope_layout: RopeLayout,
    /// Standard deviation of initial weights.
    pub init_std: f32,
    /// Dropout rate of the model; [`with_dropout`](Self::with_dropout) sets it for single fields.
    pub dropout: f32,
    dropouts: BTreeMap<String, f32>,
    /// Windows, soft cap and scale of attentions; [`with_attention`](Self::with_attention) sets them for single fields.
    pub attention: AttentionOptions,
    attention_of_fields: Vec<(String, AttentionOptions)>,
    /// Soft cap, label smoothing, z-loss and f32 logits of heads and cross-entropies;
    /// [`with_head`](Self::with_head) sets them for single fields.
    pub head: HeadOptions,
    head_of_fields: BTreeMap<String, HeadOptions>,
    /// Scores and weights of routers.
    pub router: RouterOptions,
    /// Weights of the auxiliary losses of routers.
    pub penalties: RouterPenalties,
    /// Change of the bias of the choice of each expert after each step, 0 for none: toward equal loads of the experts,
    /// instead of an auxiliary loss.
    pub choice_bias_rate: f32,
    /// Replaces the style of the context-parallel attentions of the model.
    pub context: Option<ContextStyle>,
    /// Adapters of linear layers: with them, all other parameters are frozen.
    pub lora: Option<LoraOptions>,
    /// Override of the recomputation that the model's attributes declare.
    pub recompute: Option<RecomputeOverride>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct DimSize {
    name: &'static str,
    size: usize,
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes {
            dims: HashMap::new(),
            flags: BTreeMap::new(),
            numbers: BTreeMap::new(),
            optional: BTreeMap::new(),
            padding: HashMap::new(),
            counts: BTreeMap::new(),
            inits: BTreeMap::new(),
            kinds: BTreeMap::new(),
            is_truncated: false,
            norm_eps: 1e-5,
            norm_offset: 0.0,
            norms: BTreeMap::new(),
            rope: RopeParameters::default(),
            ropes: Vec::new(),
            ropes_of_fields: BTreeMap::new(),
            rope_layout: RopeLayout::HalfSplit,
            init_std: 0.02,
            dropout: 0.0,
            dropouts: BTreeMap::new(),
            attention: AttentionOptions::default(),
            attention_of_fields: Vec::new(),
            head: HeadOptions::default(),
            head_of_fields: BTreeMap::new(),
            router: RouterOptions::default(),
            penalties: RouterPenalties::default(),
            choice_bias_rate: 0.0,
            context: None,
            lora: None,
            recompute: None,
        }
    }
}

impl Sizes {
    /// Creates settings without sizes and with defaults: epsilon 1e-5, rotary base 10,000 without scaling,
    /// half-split rotary pairs, weights of standard deviation 0.02, no dropout, attention without windows and soft cap,
    /// recomputation as the model declares.
    pub fn new() -> Sizes {
        Sizes::default()
    }

    /// Sets the size of dim `D`: `Sizes::new().with(Hidden, 512)`.
    #[must_use]
    pub fn with<D: Whole>(mut self, _: D, size: usize) -> Sizes {
        self.dims.insert(TypeId::of::<D>(), DimSize { name: D::INFO.name, size });
        self
    }

    /// Sets or clears the flag `name`, which `#[tied(.., when = "name")]` reads. A model with such a field is refused
    /// without it.
    #[must_use]
    pub fn with_flag(mut self, name: &str, set: bool) -> Sizes {
        self.flags.insert(name.to_owned(), set);
        self
    }

    /// Sets the row of embeddings over `D` that stands for padding: it starts as zeros, and look-ups give it no
    /// gradient.
    #[must_use]
    pub fn with_padding<D: Whole>(mut self, _: D, row: usize) -> Sizes {
        self.padding.insert(TypeId::of::<D>(), row);
        self
    }

    /// Returns the padding row of embeddings over `D`.
    pub(super) fn padding<D: Whole>(&self) -> Option<usize> {
        self.padding.get(&TypeId::of::<D>()).copied()
    }

    /// Sets whether the model has its optional fields (`Option<Layer>`) of this name. `field` is the name, or the end
    /// of a path without numbers, such as `mlp.bias`, which takes precedence over shorter ones. Every optional field
    /// must be set, and a problem of the model is to have one that does not exist.
    #[must_use]
    pub fn with_optional(mut self, field: &str, is_present: bool) -> Sizes {
        self.optional.insert(field.to_owned(), is_present);
        self
    }

    /// Sets how many elements the repeated fields (`Vec<Layer>`) of this name have, named as in
    /// [`with_optional`](Self::with_optional).
    #[must_use]
    pub fn with_count(mut self, field: &str, count: usize) -> Sizes {
        self.counts.insert(field.to_owned(), count);
        self
    }

    /// Sets the initial values of a parameter, or of all parameters in the fields of a name: `with_init("attn.o",
    /// Init::Normal(0.01))`, `with_init("o.weight", ..)`. Named as in [`with_optional`](Self::with_optional); the name
    /// of an inner field precedes that of a field around it, and all of them precede `#[init(..)]`. To name one that
    /// does not exist is a problem of the model, and so is a standard deviation that is negative or not finite.
    #[must_use]
    pub fn with_init(mut self, field: &str, init: Init) -> Sizes {
        self.inits.insert(field.to_owned(), init);
        self
    }

    /// Sets the kinds of the layers of a stack of an enum, by the names of its variants, and by the name of the stack
    /// as in [`with_optional`](Self::with_optional): `with_kinds("blocks", ["Dense", "Moe"])`. They are repeated over
    /// the layers, whose number is a multiple of theirs. Names of other variants, and of other fields, are problems of
    /// the model.
    #[must_use]
    pub fn with_kinds<K: Into<String>>(
        mut self,
        field: &str,
        kinds: impl IntoIterator<Item = K>,
    ) -> Sizes {
        let kinds = kinds.into_iter().map(Into::into).collect();
        self.kinds.insert(field.to_owned(), kinds);
        self
    }

    /// Sets the options of the attentions, and position biases, in fields named `field`, instead of the options of
    /// [`attention`](Self::attention). To name a field that does not exist is a problem of the model.
    #[must_use]
    pub fn with_attention(mut self, field: &str, options: AttentionOptions) -> Sizes {
        self.attention_of_fields.retain(|(name, _)| name != field);
        self.attention_of_fields.push((field.to_owned(), options));
        self
    }

    /// Sets the options of the heads and cross-entropies in fields named `field`, instead of those of
    /// [`head`](Self::head). To name a field that does not exist is a problem of the model.
    #[must_use]
    pub fn with_head(mut self, field: &str, options: HeadOptions) -> Sizes {
        self.head_of_fields.insert(field.to_owned(), options);
        self
    }

    /// Returns the options of heads in fields named `field`.
    pub(super) fn head_of(&self, field: &str) -> HeadOptions {
        self.head_of_fields.get(field).copied().unwrap_or(self.head)
    }

    /// Returns the fields that have head options of their own.
    pub(super) fn head_fields(&self) -> impl Iterator<Item = (&String, &HeadOptions)> {
        self.head_of_fields.iter()
    }

    /// Sets the options of the norms of this name, instead of [`norm_eps`](Self::norm_eps) and
    /// [`norm_offset`](Self::norm_offset). `field` is named as in [`with_optional`](Self::with_optional), and one that
    /// does not exist is a problem of the model.
    #[must_use]
    pub fn with_norm(mut self, field: &str, options: NormOptions) -> Sizes {
        self.norms.insert(field.to_owned(), options);
        self
    }

    /// Sets the parameters of the rotary embeddings of this name, instead of [`rope`](Self::rope) and
    /// [`ropes`](Self::ropes); `None` rotates nothing. `field` is named as in [`with_optional`](Self::with_optional),
    /// and one that does not exist is a problem of the model.
    #[must_use]
    pub fn with_rope(mut self, field: &str, rope: impl Into<Option<RopeParameters>>) -> Sizes {
        self.ropes_of_fields.insert(field.to_owned(), rope.into());
        self
    }

    /// Sets the rate of the [`Dropout`](super::Dropout) layers of this name, instead of [`dropout`](Self::dropout).
    /// `field` is named as in [`with_optional`](Self::with_optional), and one that does not exist is a problem of the
    /// model.
    #[must_use]
    pub fn with_dropout(mut self, field: &str, rate: f32) -> Sizes {
        self.dropouts.insert(field.to_owned(), rate);
        self
    }

    /// Returns the size of dim `D`, if it is set.
    pub fn get<D: Whole>(&self) -> Option<usize> {
        self.dims.get(&TypeId::of::<D>()).map(|dim| dim.size)
    }

    /// Sets a number that a layer of the model's author reads by [`number`](Self::number), such as the limit of an
    /// activation.
    #[must_use]
    pub fn with_number(mut self, name: &str, number: f32) -> Sizes {
        self.numbers.insert(name.to_owned(), number);
        self
    }

    /// Returns the number `name`, if it is set.
    pub fn number(&self, name: &str) -> Option<f32> {
        self.numbers.get(name).copied()
    }

    /// Returns true if the flag `name` is set.
    pub fn flag(&self, name: &str) -> bool {
        self.flags.get(name).is_some_and(|set| *set)
    }

    /// Returns true if the flag `name` is set or cleared.
    pub(super) fn has_flag(&self, name: &str) -> bool {
        self.flags.contains_key(name)
    }

    /// Returns the options of attentions in fields named `field`.
    pub(super) fn attention_of(&self, field: &str) -> &AttentionOptions {
        let own = self.attention_of_fields.iter().find(|(name, _)| name == field);
        own.map_or(&self.attention, |(_, options)| options)
    }

    /// Returns the names of the fields that have options of their own.
    pub(super) fn attention_fields(&self) -> impl Iterator<Item = &str> {
        self.attention_of_fields.iter().map(|(name, _)| name.as_str())
    }

    /// Returns the settings of optional fields, by the names that are set.
    pub(super) fn optional(&self) -> &BTreeMap<String, bool> {
        &self.optional
    }

    /// Returns the settings of repeated fields, by the names that are set.
    pub(super) fn counts(&self) -> &BTreeMap<String, usize> {
        &self.counts
    }

    /// Returns the options of norms that differ from those of the model, by the names that are set.
    pub(super) fn norms(&self) -> &BTreeMap<String, NormOptions> {
        &self.norms
    }

    /// Returns the dropout rates that differ from that of the model, by the names that are set.
    pub(super) fn dropouts(&self) -> &BTreeMap<String, f32> {
        &self.dropouts
    }

    /// Returns the rotary embeddings that differ from those of the model, by the names that are set.
    pub(super) fn ropes_of_fields(&self) -> &BTreeMap<String, Option<RopeParameters>> {
        &self.ropes_of_fields
    }

    /// Returns initial values, by the names that are set.
    pub(super) fn inits(&self) -> &BTreeMap<String, Init> {
        &self.inits
    }

    /// Returns the kinds of layers, by the names of stacks.
    pub(super) fn kinds(&self) -> &BTreeMap<String, Vec<String>> {
        &self.kinds
    }

    /// Returns the sizes of a model with fewer layers, to learn about the whole one: kinds of layers need not repeat
    /// evenly over them.
    #[doc(hidden)]
    #[must_use]
    pub fn truncated_to(self, layers: usize) -> Sizes {
        Sizes { is_truncated: true, ..self.with(Layers, layers) }
    }

    /// Returns true if the sizes are [truncated](Self::truncated_to).
    pub(super) fn is_truncated(&self) -> bool {
        self.is_truncated
    }

    /// Returns the number of layers after which all kinds of layers and rotary embeddings repeat.
    #[doc(hidden)]
    pub fn layer_period(&self) -> usize {
        let lens = self.kinds.values().map(Vec::len).chain([self.ropes.len()]);
        let lens = lens.filter(|len| *len > 0);
        lens.fold(1, |period, len| {
            let multiple = (1..=len).find(|times| (period * times).is_multiple_of(len));
            period * multiple.unwrap_or(len)
        })
    }

    /// Returns everything that the results of a model depend on as text, which is equal for equal settings.
    pub(super) fn text(&self) -> String {
        let mut dims: Vec<&DimSize> = self.dims.values().collect();
        dims.sort();
        let Sizes {
            flags,
            optional,
            counts,
            inits,
            kinds,
            norm_eps,
            rope,
            rope_layout,
            init_std,
            dropout,
            ..
        } = self;
        let Sizes { attention, attention_of_fields, head, head_of_fields, router, context, .. } =
            self;
        let Sizes { norm_offset, norms, ropes, ropes_of_fields, dropouts, lora, .. } = self;
        let Sizes { choice_bias_rate, numbers, .. } = self;
        format!(
            "{dims:?} {flags:?} {optional:?} {counts:?} {inits:?} {kinds:?} {norm_eps} {rope:?} {rope_layout:?} \
             {init_std} {dropout} {attention:?} {attention_of_fields:?} {head:?} {head_of_fields:?} {router:?} \
             {context:?} {norm_offset} \
             {norms:?} {ropes:?} {ropes_of_fields:?} {dropouts:?} {lora:?} {choice_bias_rate} {numbers:?}"
        )
    }

    #[doc(hidden)]
    pub fn dim_size(&self, dim: &DimInfo) -> Option<usize> {
        if (dim.key)() == TypeId::of::<LoraRank>() {
            return self.lora.as_ref().map(|lora| lora.rank);
        }
        self.dims.get(&(dim.key)()).map(|dim| dim.size)
    }
}
